#!/bin/sh
# `weir` in a container. The laws were compiled when the image was made, but Numba uses compiled code only from a
# folder that it may write to, and the image's own may be read-only: so the copy of them (6 MB) is what it uses.
if [ ! -e "$NUMBA_CACHE_DIR" ]; then
    own="$NUMBA_CACHE_DIR.$$"
    rm -rf "$own"
    # Whose copy does not get there, since a health check was quicker or the disk is full, takes it back.
    cp -r /opt/weir/compiled "$own" && mv -T "$own" "$NUMBA_CACHE_DIR" 2>/dev/null || rm -rf "$own"
fi
exec /opt/weir/bin/weir "$@"
