"""Answers heard in a browser, repeatedly and in several ways: ``utterwire latency --browser``.

A headless Chromium opens a small page, which :mod:`.site` serves to it alone, beside a relay to the
endpoint. The page plays by the modules of :mod:`utterwire_player` and records what they render.
The figures are those of the schema ``latency`` of :mod:`utterwire_schemas`.
"""
