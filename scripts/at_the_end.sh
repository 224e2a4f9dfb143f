#!/bin/sh
# at_the_end.sh COMMAND...: run it beside what is shown meanwhile: what it says comes in one piece, when it has ended.
said=$(mktemp) && trap 'rm -f "$said"' EXIT
"$@" >"$said" 2>&1
status=$?
cat "$said"
exit $status
