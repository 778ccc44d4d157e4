#!/usr/bin/python3
"""GPT-2's byte pair encoding in a few lines of Python, on a vocabulary made up here.

    /usr/bin/python3 gpt2_bpe.py SEED FOLDER

writes FOLDER/vocab.json, FOLDER/merges.txt and FOLDER/cases.txt, where each line is a text in hexadecimal,
a colon and its tokens. tests/golden/text has the output for seed 0. The pattern is GPT-2's; Python's `re` has
no classes \\p{L} and \\p{N}, so they are written out from unicodedata.
"""
import json
import random
import re
import sys
import unicodedata


def char_class(prefix):
    """The characters of a category, as the inside of a [...]"""
    text, run = "", None
    for code in range(0x110001):
        inside = code < 0x110000 and unicodedata.category(chr(code))[0] == prefix
        if inside and run is None:
            run = code
        elif not inside and run is not None:
            text += "\\U%08x-\\U%08x" % (run, code - 1)
            run = None
    return text


L, N = char_class("L"), char_class("N")
S = "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"
PATTERN = re.compile(f"'s|'t|'re|'ve|'m|'ll|'d| ?[{L}]+| ?[{N}]+| ?[^{S}{L}{N}]+|[{S}]+(?![^{S}])|[{S}]+")


def bytes_to_unicode():
    shown = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    codes, extra = list(shown), 0
    for byte in range(256):
        if byte not in shown:
            shown.append(byte)
            codes.append(256 + extra)
            extra += 1
    return dict(zip(shown, map(chr, codes)))


ALPHABET = bytes_to_unicode()


def symbols(piece):
    return tuple(ALPHABET[byte] for byte in piece.encode("utf-8"))


def merged(word, pair):
    out, i = [], 0
    while i < len(word):
        if i + 1 < len(word) and (word[i], word[i + 1]) == pair:
            out.append(word[i] + word[i + 1])
            i += 2
        else:
            out.append(word[i])
            i += 1
    return tuple(out)


def learn(text, count):
    """The most frequent pair, again and again."""
    words = {}
    for piece in PATTERN.findall(text):
        words[symbols(piece)] = words.get(symbols(piece), 0) + 1
    merges = []
    while len(merges) < count:
        pairs = {}
        for word, often in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] = pairs.get(pair, 0) + often
        if not pairs:
            break
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        words = {merged(word, best): often for word, often in words.items()}
    return merges


def encode(text, vocab, ranks):
    tokens = []
    for piece in PATTERN.findall(text):
        word = symbols(piece)
        while len(word) > 1:
            pairs = [pair for pair in zip(word, word[1:]) if pair in ranks]
            if not pairs:
                break
            word = merged(word, min(pairs, key=ranks.get))
        tokens += [vocab[symbol] for symbol in word]
    return tokens


TEXT = """It wasn't the rain that we'd feared; it's what they'll say in 2019, in 1987 or in 42 years.
The cats' house — the café, the naïve façade — stood where he's been: "I'm here," she'd said. We've seen it!
Der Weg ist das Ziel, und über Größe lässt sich streiten. Привет, мир! 世界 こんにちは ½ ² Ⅷ ٣
    def f(x):\n\treturn x ** 2  # 100%\n\n\n   the end   
"""
FIXED = ["", " ", "  ", "   a", "a   ", "\n\n a", "\t\tx", "it's", "IT'S", "'s", " 's", "''s", "I'll've", "a'b", "x=1;y=22",
         "\u00a0a", "a\u2003\u2003b", "😀😀 😀", "e\u0301", "１２３", "<|endoftext|>", "\x00\x01", "\x1c\x1d a", "\x85", "don't " * 3]


def main(seed, folder):
    rng = random.Random(seed)
    merges = learn(TEXT * 2, 300)
    tokens = list(ALPHABET.values()) + ["".join(pair) for pair in merges]
    tokens = list(dict.fromkeys(tokens)) + ["<|endoftext|>"]
    vocab = {token: number for number, token in enumerate(tokens)}
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    with open(folder + "/vocab.json", "w", encoding="utf-8") as out:
        json.dump(vocab, out, ensure_ascii=seed % 2 == 0)
    with open(folder + "/merges.txt", "w", encoding="utf-8") as out:
        out.write("#version: 0.2\n" + "".join("%s %s\n" % pair for pair in merges))
    texts = list(FIXED) + TEXT.splitlines(True) + [TEXT]
    letters = TEXT + " \t\n'" * 20 + "😀Ωж٣½"
    for _ in range(150):
        texts.append("".join(rng.choice(letters) for _ in range(rng.randrange(60))))
    texts.append("the" * 400)
    with open(folder + "/cases.txt", "w") as out:
        for text in texts:
            found = encode(text, vocab, ranks)
            out.write("%s:%s\n" % (text.encode("utf-8").hex(), "".join(" %d" % token for token in found)))


main(int(sys.argv[1]), sys.argv[2])
