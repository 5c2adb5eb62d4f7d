# Writes OUT: the page of `lumen serve` as one file, from FOLDER (page.html, its style and scripts) and the libraries that
# render Markdown, formulas and code. Their licences become part of the page.
# Arguments: OUT, FOLDER, MARKED, KATEX, HIGHLIGHT (the folder of highlight.js), LANGUAGES, SCRIPTS, LICENCES (files).
cmake_minimum_required(VERSION 3.25)  # policies: @NAME@ is no reference to a variable
set(script "")
foreach(library ${MARKED} ${KATEX})
  file(READ ${library} text)
  string(APPEND script "${text}\n;\n")
endforeach()

# Files of CommonJS: each gets the `module` or `exports` that it writes to.
file(READ ${HIGHLIGHT}/highlight.js text)
string(APPEND script "const hljs = (() => { const exports = {}, module = { exports };\n${text}\nreturn module.exports; })();\n")
foreach(language IN LISTS LANGUAGES)
  file(READ ${HIGHLIGHT}/languages/${language}.js text)
  string(APPEND script "hljs.registerLanguage(\"${language}\", (() => { const module = {};\n${text}\nreturn module.exports; })());\n")
endforeach()

string(APPEND script "(() => {\n\"use strict\";\n")
foreach(name IN LISTS SCRIPTS)
  file(READ ${FOLDER}/${name} text)
  string(APPEND script "${text}")
endforeach()
string(APPEND script "})();\n")
# In an element <script> this would end it, or begin a state of the parser in which its end is not seen.
foreach(word "</script" "<!--")
  string(FIND "${script}" "${word}" place)
  if(NOT place EQUAL -1 AND word STREQUAL "</script")
    message(FATAL_ERROR "a script of the page contains ${word}")
  endif()
endforeach()
string(REPLACE "<!--" "\\x3c!--" script "${script}")

set(licences "")
foreach(file IN LISTS LICENCES)
  file(READ ${file} text)
  get_filename_component(folder ${file} DIRECTORY)
  get_filename_component(name ${folder} NAME)
  string(REPLACE "&" "&amp;" text "${text}")
  string(REPLACE "<" "&lt;" text "${text}")
  string(APPEND licences "    <h3>${name}</h3>\n    <pre tabindex=\"0\">${text}</pre>\n")
endforeach()

file(READ ${FOLDER}/page.html page)
file(READ ${FOLDER}/page.css style)
# Not string(CONFIGURE), which would change the scripts as well.
foreach(part STYLE SCRIPT LICENCES)
  string(FIND "${page}" "@${part}@" place)
  if(place EQUAL -1)
    message(FATAL_ERROR "page.html has no @${part}@")
  endif()
endforeach()
string(REPLACE "@STYLE@" "${style}" page "${page}")
string(REPLACE "@LICENCES@" "${licences}" page "${page}")
string(REPLACE "@SCRIPT@" "${script}" page "${page}")
file(WRITE ${OUT} "${page}")
