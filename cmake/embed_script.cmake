# Writes OUT: the contents of FILES, taken in by the assembler, and a function lumen::embedded::NAME() that lists them.
set(code "// Made by the build from files of the source tree.\n#include \"base/embedded.h\"\n")
set(entries "")
set(number 0)
foreach(file IN LISTS FILES)
  file(RELATIVE_PATH path ${ROOT} ${file})
  set(symbol "lumen_embedded_${NAME}_${number}")
  string(APPEND code "asm(\".section .rodata\\n${symbol}:\\n.incbin \\\"${file}\\\"\\n${symbol}_end:\\n.byte 0\\n.globl ${symbol}\\n.globl ${symbol}_end\\n.previous\");\n"
    "extern \"C\" const char ${symbol}[], ${symbol}_end[];\n")
  string(APPEND entries "      {\"${path}\", {${symbol}, static_cast<size_t>(${symbol}_end - ${symbol})}},\n")
  math(EXPR number "${number} + 1")
endforeach()
string(APPEND code "namespace lumen::embedded {\nstd::vector<File> ${NAME}() {\n  return {\n${entries}  };\n}\n}  // namespace lumen::embedded\n")
file(WRITE ${OUT} "${code}")
