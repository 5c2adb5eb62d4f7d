# fuzz_targets(FOLDER): the targets (*_fuzz.cpp) compiled as one, each with a name of its own, in FOLDER/fuzz_targets.cpp;
# FOLDER/fuzz_targets.inc lists them.
function(fuzz_targets folder)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/fuzz/*_fuzz.cpp)
  set(list "")
  set(code "// Made by tests/fuzz/targets.cmake.\n")
  foreach(source ${sources})
    get_filename_component(name ${source} NAME_WE)
    string(REPLACE "_fuzz" "" name ${name})
    string(APPEND list "FUZZ_TARGET(${name})\n")
    string(APPEND code "#define LLVMFuzzerTestOneInput fuzz_${name}\n#define LLVMFuzzerCustomMutator mutate_${name}\n"
      "#include \"${source}\"\n#undef LLVMFuzzerTestOneInput\n#undef LLVMFuzzerCustomMutator\n")
  endforeach()
  file(CONFIGURE OUTPUT ${folder}/fuzz_targets.inc CONTENT "${list}")
  file(CONFIGURE OUTPUT ${folder}/fuzz_targets.cpp CONTENT "${code}" @ONLY)
endfunction()
