# cmake -DINPUT=... -DOUTPUT=... -P: the file with empty lines for those that end in "// <-".
file(READ ${INPUT} text)
string(REGEX REPLACE "\n[^\n]*// <-\n" "\n\n" text "${text}")
string(REGEX REPLACE "\n[^\n]*// <-\n" "\n\n" text "${text}")  # of two neighbours the second
file(WRITE ${OUTPUT} "${text}")
