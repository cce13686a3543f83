# compile.sh FOLDER: builds the program on standard input into FOLDER.

rm -rf "$1" && exec sh "${0%/*}/tool.sh" build "$1"
