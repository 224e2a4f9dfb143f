#!/bin/sh
# `weir` in a container. The laws were compiled when the image was made, but Numba uses compiled code only from a
# folder that it may write to, and the image's own may be read-only: so the copy of them (6 MB) is what it uses.
if [ ! -e "$NUMBA_CACHE_DIR" ]; then
    cp -r /opt/weir/compiled "$NUMBA_CACHE_DIR.$$" && mv -T "$NUMBA_CACHE_DIR.$$" "$NUMBA_CACHE_DIR" 2>/dev/null
fi
exec /opt/weir/bin/weir "$@"
