# Completion scripts and manual pages, printed by PROGRAM into FOLDER as they lie below share/.
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER}/bash-completion/completions ${FOLDER}/zsh/site-functions ${FOLDER}/fish/vendor_completions.d
     ${FOLDER}/man/man1)

function(printed file)
  execute_process(COMMAND ${PROGRAM} ${ARGN} OUTPUT_FILE ${FOLDER}/${file} COMMAND_ERROR_IS_FATAL ANY)
endfunction()
printed(bash-completion/completions/lumen shell-completion bash)
printed(zsh/site-functions/_lumen shell-completion zsh)
printed(fish/vendor_completions.d/lumen.fish shell-completion fish)
printed(man/man1/lumen.1 manual)
file(STRINGS ${FOLDER}/man/man1/lumen.1 page)
set(in_commands FALSE)
foreach(line IN LISTS page)
  if(line MATCHES "^\\.SH (.*)")
    string(COMPARE EQUAL "${CMAKE_MATCH_1}" COMMANDS in_commands)
  elseif(in_commands AND line MATCHES "^\\.B ([a-z\\-]+)$")
    string(REPLACE "\\" "" command ${CMAKE_MATCH_1})  # as roff writes a dash
    printed(man/man1/lumen-${command}.1 manual ${command})
  endif()
endforeach()
