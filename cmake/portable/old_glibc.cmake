# Programs and libraries that start with glibc LUMEN_OLDEST_GLIBC: linked with stand-ins for the files of that version, of
# which only names and versions count (old_glibc.py), and with what it lacks (old_glibc.c, old_start.c).
set(LUMEN_OLDEST_GLIBC 2.31 CACHE STRING "the oldest C library that portable programs start with")
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(old_glibc_folder ${CMAKE_BINARY_DIR}/portable/glibc)
set(old_glibc_sources ${CMAKE_CURRENT_LIST_DIR})
add_custom_command(OUTPUT ${old_glibc_folder}/libc.so VERBATIM DEPENDS ${old_glibc_sources}/old_glibc.py
  COMMAND ${Python3_EXECUTABLE} ${old_glibc_sources}/old_glibc.py ${CMAKE_CXX_COMPILER} ${LUMEN_OLDEST_GLIBC} ${old_glibc_folder})
add_custom_target(lumen_old_glibc DEPENDS ${old_glibc_folder}/libc.so)

function(lumen_link_old_glibc target)
  add_dependencies(${target} lumen_old_glibc)
  target_sources(${target} PRIVATE ${old_glibc_sources}/old_glibc.c)
  target_link_options(${target} PRIVATE -L${old_glibc_folder} -static-libstdc++ -static-libgcc -Wl,-z,nocopyreloc)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")
    target_sources(${target} PRIVATE ${old_glibc_sources}/old_start.c)
    target_link_options(${target} PRIVATE -Wl,--wrap=__libc_start_main)
  endif()
  # The older C library is in several files, all of which have to be loaded.
  target_link_libraries(${target} PRIVATE -Wl,--push-state,--no-as-needed,-lpthread,-ldl,-lrt,--pop-state)
endfunction()
