# `ninja -C build portable` links the objects of this build a second time, as build/portable/lumen and
# build/portable/liblumen.so: LLVM and all other libraries are inside, and they start with glibc LUMEN_OLDEST_GLIBC or a
# newer one. A target with the property LUMEN_PORTABLE is linked so.
set(portable_folder ${CMAKE_BINARY_DIR}/portable)
set(portable_sources ${CMAKE_SOURCE_DIR}/cmake/portable)
include(${portable_sources}/old_glibc.cmake)
set(is_portable "$<BOOL:$<TARGET_PROPERTY:LUMEN_PORTABLE>>")

# What a library needs: SHARED of the system, or INSIDE a portable program, archives. OF_PROGRAMS are archives that
# Debian compiles for programs alone: they reach stderr by its address, which a shared library cannot have and which the
# older C library does not copy. They get a variable of ours instead (left_out_streams.c).
find_program(OBJCOPY_PROGRAM objcopy REQUIRED)
function(lumen_external out)
  cmake_parse_arguments(PARSE_ARGV 1 wanted "" "" "SHARED;INSIDE;OF_PROGRAMS")
  set(libraries "")
  foreach(library IN LISTS wanted_SHARED)
    list(APPEND libraries "$<$<NOT:${is_portable}>:${library}>")
  endforeach()
  foreach(name IN LISTS wanted_INSIDE)
    find_library(ARCHIVE_${name} NAMES lib${name}.a HINTS ${LLVM_LIBRARY_DIRS} REQUIRED)
    list(APPEND libraries "$<${is_portable}:${ARCHIVE_${name}}>")
  endforeach()
  foreach(name IN LISTS wanted_OF_PROGRAMS)
    find_library(ARCHIVE_${name} NAMES lib${name}.a REQUIRED)
    file(MAKE_DIRECTORY ${portable_folder}/archives)
    set(changed ${portable_folder}/archives/lib${name}.a)
    execute_process(COMMAND ${OBJCOPY_PROGRAM} --redefine-sym stderr=lumen_standard_error ${ARCHIVE_${name}} ${changed}
                    COMMAND_ERROR_IS_FATAL ANY)
    list(APPEND libraries "$<${is_portable}:${changed}>")
  endforeach()
  set(${out} "${libraries}" PARENT_SCOPE)
endfunction()

# Only the code generators that Lumen uses.
set(portable_targets X86 AArch64 ARM NVPTX AMDGPU)
find_program(LLVM_CONFIG_PROGRAM NAMES llvm-config-22 HINTS ${LLVM_TOOLS_BINARY_DIR} REQUIRED)
set(components passes runtimedyld option aarch64asmparser)
foreach(target IN LISTS portable_targets)
  string(TOLOWER ${target} name)
  list(APPEND components ${name}codegen ${name}desc ${name}info)
endforeach()
execute_process(COMMAND ${LLVM_CONFIG_PROGRAM} --link-static --libs ${components} OUTPUT_VARIABLE LUMEN_LLVM_ARCHIVES
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)  # it complains of plugins that are not installed
if(NOT LUMEN_LLVM_ARCHIVES)
  message(FATAL_ERROR "${LLVM_CONFIG_PROGRAM} names no static libraries; they are part of llvm-22-dev")
endif()
separate_arguments(LUMEN_LLVM_ARCHIVES UNIX_COMMAND "${LUMEN_LLVM_ARCHIVES}")
list(TRANSFORM LUMEN_LLVM_ARCHIVES REPLACE "^-l" "")

# What the archives lack, and what of LLVM stays out. The linker's initialization names every target that LLVM has.
set(code "")
foreach(target IN LISTS LLVM_TARGETS_TO_BUILD)
  foreach(part TargetInfo Target TargetMC AsmPrinter AsmParser)
    set(is_parser FALSE)
    if(part STREQUAL "AsmParser" AND NOT target STREQUAL "AArch64")
      set(is_parser TRUE)
    endif()
    if(NOT target IN_LIST portable_targets OR is_parser)
      string(APPEND code "void LLVMInitialize${target}${part}(void) {}\n")
    endif()
  endforeach()
endforeach()
file(GENERATE OUTPUT ${portable_folder}/targets_left_out.c CONTENT "${code}")
add_custom_command(OUTPUT ${portable_folder}/httplib/httplib.cc VERBATIM
  COMMAND ${portable_sources}/httplib_source.sh ${portable_folder}/httplib
  DEPENDS ${portable_sources}/httplib_source.sh)
add_library(lumen_portable_parts OBJECT EXCLUDE_FROM_ALL
  ${portable_sources}/left_out.cpp ${portable_sources}/left_out_selection.cpp ${portable_sources}/left_out_terminal.c
  ${portable_sources}/left_out_streams.c
  ${portable_sources}/fmt_inside.cpp
  ${portable_folder}/targets_left_out.c ${portable_folder}/httplib/httplib.cc)
set_source_files_properties(${portable_folder}/httplib/httplib.cc PROPERTIES COMPILE_OPTIONS -w COMPILE_DEFINITIONS
  "CPPHTTPLIB_OPENSSL_SUPPORT;CPPHTTPLIB_ZLIB_SUPPORT;CPPHTTPLIB_BROTLI_SUPPORT;CPPHTTPLIB_USE_POLL")
target_include_directories(lumen_portable_parts SYSTEM PRIVATE ${LLVM_INCLUDE_DIRS})
target_compile_definitions(lumen_portable_parts PRIVATE ${LLVM_DEFINITIONS})
target_compile_options(lumen_portable_parts PRIVATE -ffunction-sections -fdata-sections)

# Its own word for --version.
set(portable_version ${portable_folder}/version.cpp)
add_custom_target(lumen_portable_version BYPRODUCTS ${portable_version} VERBATIM
  COMMAND ${CMAKE_COMMAND} -D OUT=${portable_version} -D SOURCE=${CMAKE_SOURCE_DIR} -D VERSION=${PROJECT_VERSION}
          -D "BUILD=${LUMEN_BUILD}, portable" -P ${CMAKE_SOURCE_DIR}/cmake/version.cmake)

# Links `target` so; of its objects nothing changes.
function(lumen_link_portable target)
  set_target_properties(${target} PROPERTIES LUMEN_PORTABLE ON)
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:lumen_portable_parts>)
  target_link_options(${target} PRIVATE -Wl,--gc-sections -Wl,--allow-multiple-definition -s)
  lumen_link_old_glibc(${target})
endfunction()

# portable_`of`, a program of the objects of `of` in build/portable.
function(lumen_portable_program of)
  add_executable(portable_${of} EXCLUDE_FROM_ALL $<TARGET_OBJECTS:${of}> ${portable_version})
  add_dependencies(portable_${of} lumen_portable_version)
  set_target_properties(portable_${of} PROPERTIES OUTPUT_NAME ${of} RUNTIME_OUTPUT_DIRECTORY ${portable_folder})
  target_include_directories(portable_${of} PRIVATE ${CMAKE_SOURCE_DIR}/src)
  get_target_property(libraries ${of} LINK_LIBRARIES)
  target_link_libraries(portable_${of} PRIVATE ${libraries})
  lumen_link_portable(portable_${of})
endfunction()

# portable_`of`, the shared library of the objects of `of` in build/portable.
function(lumen_portable_library of)
  add_library(portable_${of} SHARED EXCLUDE_FROM_ALL $<TARGET_OBJECTS:${of}> ${portable_version})
  add_dependencies(portable_${of} lumen_portable_version)
  foreach(property OUTPUT_NAME VERSION SOVERSION LINK_OPTIONS LINK_DEPENDS)
    get_target_property(value ${of} ${property})
    if(NOT value MATCHES "NOTFOUND$")
      set_target_properties(portable_${of} PROPERTIES ${property} "${value}")
    endif()
  endforeach()
  set_target_properties(portable_${of} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${portable_folder})
  target_include_directories(portable_${of} PRIVATE ${CMAKE_SOURCE_DIR}/src)
  get_target_property(libraries ${of} LINK_LIBRARIES)
  target_link_libraries(portable_${of} PRIVATE ${libraries})
  lumen_link_portable(portable_${of})
endfunction()
