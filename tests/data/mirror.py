#!/usr/bin/python3
"""A little HTTP server for the download tests: mirror.py FOLDER good|drop|corrupt. Prints its port, then serves.

"drop" closes the connection half way through each file; "corrupt" serves a good gzip of bytes of which one is wrong. Range requests
are answered. Each GET goes as a line into the file that MIRROR_LOG names.
"""
import gzip
import http.server
import os
import pathlib
import re
import sys

folder, mode = pathlib.Path(sys.argv[1]), sys.argv[2]


class Mirror(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if os.environ.get("MIRROR_LOG"):
            with open(os.environ["MIRROR_LOG"], "a") as log:
                log.write(self.path + "\n")
        path = folder / pathlib.Path(self.path).name
        if not path.exists():
            self.send_error(404)
            return
        data = path.read_bytes()
        if mode == "corrupt":
            raw = bytearray(gzip.decompress(data))
            raw[100] ^= 1
            data = gzip.compress(bytes(raw), 1)
        wanted = re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
        begin = int(wanted.group(1)) if wanted else 0
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - begin))
        self.end_headers()
        rest = data[begin:]
        self.wfile.write(rest[: len(rest) // 2] if mode == "drop" else rest)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Mirror)
print(server.server_port, flush=True)
server.serve_forever()
