# Sources compiled several at a time: half the time of a build from nothing. LUMEN_UNITS=OFF compiles each alone, as do
# machines without Python. cmake/units.py says which may share a unit; where a new name lets two sources of a unit clash,
# the compiler complains, and configuring again parts them.
option(LUMEN_UNITS "compile sources together that may be" ON)
find_package(Python3 QUIET COMPONENTS Interpreter)

function(lumen_units target most_sources most_lines)
  if(NOT LUMEN_UNITS OR NOT Python3_FOUND)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  set(kept ${CMAKE_BINARY_DIR}/units/${target})
  execute_process(COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/cmake/units.py ${kept} ${most_sources} ${most_lines} ${sources}
                  OUTPUT_VARIABLE pairs COMMAND_ERROR_IS_FATAL ANY)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  while(pairs)
    list(POP_FRONT pairs unit source)
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${unit})
  endwhile()
endfunction()
