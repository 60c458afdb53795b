# What is installed: the torch-free library regard::attention (kernel and attention) and, when built, the program.
include(CMakePackageConfigHelpers)
install(TARGETS regard_kernel regard_attention EXPORT regard-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
# Not the headers of the rooms' own use: some of them include Highway.
install(DIRECTORY regard/kernel regard/attention DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/regard
        FILES_MATCHING PATTERN "*.h" PATTERN "*-inl.h" EXCLUDE
        REGEX "/kernel/(dispatch|hwy_config|kernels|[a-z_]+_layout|quantized_rows|dot_products)\\.h$" EXCLUDE
        REGEX "/attention/(lower|definition|owned|view_fault)\\.h$" EXCLUDE)
install(EXPORT regard-targets NAMESPACE regard:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/regard)
configure_package_config_file(cmake/regard-config.cmake.in ${PROJECT_BINARY_DIR}/regard-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/regard)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/regard-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/regard-config.cmake ${PROJECT_BINARY_DIR}/regard-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/regard)
if(TARGET regard)
  set_target_properties(regard PROPERTIES INSTALL_RPATH ${regard_torch_lib_dir})
  install(TARGETS regard RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
