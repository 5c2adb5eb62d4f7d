# The page of `lumen serve`, src/cli/serve/page, made one file with the libraries that it contains. All of them are required:
# without one the page would show answers differently.
function(lumen_page_library variable package)
  find_file(${variable} NO_CACHE ${ARGN})
  if(NOT ${variable})
    message(FATAL_ERROR "the page of lumen serve needs ${ARGV3} of the Debian package ${package}; tools/setup.sh installs it")
  endif()
  set(licence /usr/share/doc/${package}/copyright)
  if(NOT EXISTS ${licence})
    message(FATAL_ERROR "${licence} is missing: the page of lumen serve contains this licence")
  endif()
  set(${variable} ${${variable}} PARENT_SCOPE)
  set(page_licences ${page_licences} ${licence} PARENT_SCOPE)
endfunction()

lumen_page_library(PAGE_MARKED libjs-marked NAMES marked.min.js PATHS /usr/share/javascript/marked)
lumen_page_library(PAGE_KATEX libjs-katex NAMES katex.min.js katex.js PATHS /usr/share/javascript/katex)
lumen_page_library(PAGE_HIGHLIGHT node-highlight.js NAMES highlight.js PATHS /usr/share/nodejs/highlight.js/lib)
get_filename_component(page_highlight ${PAGE_HIGHLIGHT} DIRECTORY)

set(page_languages bash clojure cmake cpp cs css dart diff dockerfile elixir fortran glsl go haskell http ini java javascript json
  julia kotlin lisp llvm lua makefile markdown matlab nginx ocaml perl php powershell protobuf python r ruby rust scala scss shell
  sql swift tex typescript xml yaml)
set(page_scripts words.js markdown.js conversation.js store.js server.js messages.js chat.js chats.js main.js)
set(page_folder ${CMAKE_SOURCE_DIR}/src/cli/serve/page)
set(page_parts ${page_scripts} page.html page.css)
list(TRANSFORM page_parts PREPEND ${page_folder}/)
set(page_file ${CMAKE_BINARY_DIR}/embedded/page.html)
add_custom_command(
  OUTPUT ${page_file}
  COMMAND ${CMAKE_COMMAND} -DOUT=${page_file} -DFOLDER=${page_folder} -DMARKED=${PAGE_MARKED} -DKATEX=${PAGE_KATEX}
          -DHIGHLIGHT=${page_highlight} "-DLANGUAGES=${page_languages}" "-DSCRIPTS=${page_scripts}"
          "-DLICENCES=${page_licences}" -P ${CMAKE_SOURCE_DIR}/cmake/page_script.cmake
  DEPENDS ${page_parts} ${PAGE_MARKED} ${PAGE_KATEX} ${PAGE_HIGHLIGHT} ${page_licences} ${CMAKE_SOURCE_DIR}/cmake/page_script.cmake
  VERBATIM)
lumen_embed(lumen_embedded_page page ${page_file})
