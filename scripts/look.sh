#!/usr/bin/env bash
# `make look`: from a fresh clone to the heads of a real model on a real sentence.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
SENTENCE="The animal didn't cross the street because it was too tired"
PAGE=out/look.html

scripts/setup.sh look
configure_program
build "$PRESET" regard
regard=$BUILD/bin/regard
[ -d "$REGARD_CACHE/models/minilm" ] || "$regard" models get minilm --yes

mkdir -p out
"$regard" look "$SENTENCE" --token it --html "$PAGE"
cat <<END

The page:     $PWD/$PAGE  (open it in a browser; it needs no network)
The program:  $PWD/$regard
Try:
  $regard look "The trophy didn't fit in the suitcase because it was too big" --token it
  $regard look "$SENTENCE" --token it --layer 3 --head 1
  $regard models
END
