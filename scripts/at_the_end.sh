#!/bin/sh
# at_the_end.sh COMMAND...: run it beside what is shown meanwhile: what it says comes in one piece, when it has ended.
said=$(mktemp) || exit
trap 'cat "$said"; rm -f "$said"' EXIT
"$@" >"$said" 2>&1 &
trap 'kill $! 2>&1' INT TERM
# A signal ends the first of these.
wait $!
status=$?
wait $! || status=$?
exit $status
