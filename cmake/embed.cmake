# Embeds the language's own library (formats, models, recipes), the demo text and the pages of the server and of reports into the binary: each set becomes a small
# library with one function that lists (name, text) pairs.
function(lumen_embed target namespace_name)
  set(files ${ARGN})
  set(out ${CMAKE_BINARY_DIR}/embedded/${target}.cpp)
  add_custom_command(
    OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DOUT=${out} -DNAME=${namespace_name} "-DFILES=${files}" -DROOT=${CMAKE_SOURCE_DIR}
            -P ${CMAKE_SOURCE_DIR}/cmake/embed_script.cmake
    DEPENDS ${files} ${CMAKE_SOURCE_DIR}/cmake/embed_script.cmake
    VERBATIM)
  add_library(${target} STATIC ${out})
  target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR}/src)
endfunction()

file(GLOB format_files CONFIGURE_DEPENDS formats/*.lum)
file(GLOB model_files CONFIGURE_DEPENDS models/*.lum models/*.toml recipes/*.toml recipes/objectives/*.lum tasks/*.toml)
lumen_embed(lumen_embedded_formats formats ${format_files})
lumen_embed(lumen_embedded_models models ${model_files})
lumen_embed(lumen_embedded_data data ${CMAKE_SOURCE_DIR}/data/tinyshakespeare/input.txt)
include(cmake/page.cmake)
lumen_embed(lumen_embedded_report report_page ${CMAKE_SOURCE_DIR}/src/model/report/page.html)
