"""Tokenizers: text to numbers of tokens, and back.

    from lockstep.text import Tokenizer

    bpe = Tokenizer.bpe("vocab.json", "merges.txt")
    bpe.decode(bpe.encode("Hello, world"))  # "Hello, world"

The datasets TextDataset, TokenDataset, TextLines and TextStream are in lockstep.utils.data."""
import ctypes
import os

import numpy

from ._library import LockstepError, check, lk, raise_error
from ._tensors import Freed, view


class TokenizeOptions(ctypes.Structure):
    """lk_tokenize_options, <lockstep/text.h>."""
    _fields_ = [("struct_size", ctypes.c_size_t), ("end_token", ctypes.c_char_p), ("append", ctypes.c_bool)]


def _path(path):
    return os.fspath(path).encode()


class Tokenizer:
    """Make one with bytes(), chars(), chars_of() or bpe()."""

    def __init__(self, address):
        self._address = address
        if not address:
            raise_error()

    def __del__(self):
        if getattr(self, "_address", None) and lk is not None:
            lk.lk_tokenizer_free(self._address)

    @classmethod
    def bytes(cls):
        """Each byte is a token."""
        return cls(lk.lk_byte_tokenizer())

    @classmethod
    def chars(cls, vocab):
        """Each character is a token, with the numbers of a JSON file."""
        return cls(lk.lk_char_tokenizer(_path(vocab)))

    @classmethod
    def chars_of(cls, text):
        """The characters of a text, in the order of their code points."""
        data = text.encode()
        return cls(lk.lk_char_tokenizer_of(data, len(data)))

    @classmethod
    def bpe(cls, vocab, merges):
        """Byte pairs, with GPT-2's vocab.json and merges.txt."""
        return cls(lk.lk_bpe_tokenizer(_path(vocab), _path(merges)))

    def __len__(self):
        return lk.lk_tokenizer_vocab_size(self._address)

    def find(self, token):
        """The number of the token with this text, such as "<|endoftext|>"."""
        number = lk.lk_tokenizer_find(self._address, token.encode())
        if number < 0:
            raise LockstepError("the vocabulary has no token %r" % token)
        return number

    def encode(self, text):
        """An array of int64. Takes a str, or bytes."""
        data = text.encode() if isinstance(text, str) else bytes(text)
        tensor = lk.lk_tokenizer_encode(self._address, data, len(data))
        if not tensor:
            raise_error()
        return view(tensor, Freed(tensor))

    def decode_bytes(self, tokens):
        """The bytes that tokens stand for."""
        numbers = numpy.ascontiguousarray(tokens, dtype=numpy.int64).ravel()
        size = ctypes.c_size_t()
        pointer = lk.lk_tokenizer_decode(self._address, numbers.ctypes.data, numbers.size, ctypes.byref(size))
        if not pointer:
            raise_error()
        try:
            return ctypes.string_at(pointer, size.value)
        finally:
            lk.lk_text_free(pointer)

    def decode(self, tokens):
        """Their text. What is not UTF-8, such as half a character, becomes U+FFFD."""
        return self.decode_bytes(tokens).decode(errors="replace")

    def save(self, vocab):
        """Writes the numbers of the tokens as JSON."""
        check(lk.lk_tokenizer_save(self._address, _path(vocab)))

    def tokenize_file(self, tokens, text, end_token=None, append=False):
        """Writes the tokens of a text file as a file that TokenDataset reads."""
        options = TokenizeOptions(ctypes.sizeof(TokenizeOptions), end_token.encode() if end_token else None, append)
        check(lk.lk_tokenize_file_with(self._address, _path(tokens), _path(text), ctypes.byref(options)))
