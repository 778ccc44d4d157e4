// Elements, made so that what a logdir holds can only become text.

export function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
        if (value === null || value === undefined || value === false) continue;
        if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
        else element.setAttribute(name, value === true ? "" : String(value));
    }
    for (const child of children.flat()) {
        if (child === null || child === undefined) continue;
        element.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
    return element;
}

export function byId(id) {
    return document.getElementById(id);
}

export function fill(element, ...children) {
    element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
}

// Calls a function once, a while after the last of many calls.
export function later(milliseconds, action) {
    let timer = 0;
    return () => {
        clearTimeout(timer);
        timer = setTimeout(action, milliseconds);
    };
}
