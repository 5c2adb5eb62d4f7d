# What `cmake --install build` puts where: the program, the library for other programs with its header, formats, models and
# recipes as texts to read and copy (the program has its own inside), manual pages, and completion for shells.
include(GNUInstallDirs)

install(TARGETS lumen RUNTIME COMPONENT program)
install(TARGETS lumen_api LIBRARY COMPONENT library NAMELINK_COMPONENT development)
install(FILES include/lumen.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT header)
configure_file(cmake/lumen.pc.in ${CMAKE_BINARY_DIR}/lumen.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/lumen.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT header)
foreach(folder formats models recipes tasks)
  install(DIRECTORY ${folder} DESTINATION ${CMAKE_INSTALL_DATADIR}/lumen COMPONENT files)
endforeach()
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT files)
install(DIRECTORY LICENSES DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT files)

# Printed by the program itself, when it is installed.
if(NOT CMAKE_CROSSCOMPILING)
  set(LUMEN_SHARED_FILES ${CMAKE_BINARY_DIR}/shared-files)
  install(CODE "execute_process(COMMAND \"${CMAKE_COMMAND}\" -D PROGRAM=$<TARGET_FILE:lumen> -D FOLDER=${LUMEN_SHARED_FILES}
    -P ${CMAKE_SOURCE_DIR}/cmake/shared_files.cmake COMMAND_ERROR_IS_FATAL ANY)" COMPONENT files)
  install(DIRECTORY ${LUMEN_SHARED_FILES}/ DESTINATION ${CMAKE_INSTALL_DATADIR} COMPONENT files)
endif()

# `make deb`: one package with all of it; what it depends on is found from the libraries that it needs.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME lumen-compiler)
set(CPACK_PACKAGE_CONTACT "Lumen's maintainers <maintainers@users.noreply.a-seed-a7e590b3.example>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Trains, fine-tunes, quantizes and runs language models in any number format")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL program files library header development)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
include(CPack)
