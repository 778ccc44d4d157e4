// Questions to the server. Addresses are relative: the token is a part of the page's own.

export async function ask(path, query = {}) {
    const parameters = new URLSearchParams(query);
    const answer = await fetch(`api/${path}?${parameters}`, { cache: "no-store" });
    if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
    return answer;
}

export async function askJson(path, query) {
    return (await ask(path, query)).json();
}

export async function askText(path, query) {
    return (await ask(path, query)).text();
}

export function pictureAddress(run, path) {
    return `api/picture?${new URLSearchParams({ run, path })}`;
}
