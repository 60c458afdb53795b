# One folder under regard/ is one room and one library target, regard::<room>.

add_library(regard_flags INTERFACE)
target_compile_options(regard_flags INTERFACE
  -Wall -Wextra $<$<BOOL:${REGARD_WERROR}>:-Werror>
  # GCC 12 sees overflows in "text" + std::string() that are not there (GCC bug 105329).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict -Wno-stringop-overflow -Wno-array-bounds>
  # Harmless to IEEE arithmetic; a fused multiply-add is asked for by name, never by contraction.
  -fno-math-errno -fno-trapping-math -ffp-contract=off)
if(REGARD_SANITIZE)
  add_compile_options(-fsanitize=${REGARD_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${REGARD_SANITIZE})
endif()
if(REGARD_FUZZ)
  # What the fuzzers call reports which branches it took.
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# regard_room(<name> [USES <target>...] [PRIVATE <target>...])
function(regard_room name)
  cmake_parse_arguments(arg "" "" "USES;PRIVATE" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  add_library(regard_${name} STATIC ${sources})
  add_library(regard::${name} ALIAS regard_${name})
  set_target_properties(regard_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(regard_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                                   $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(regard_${name} PUBLIC cxx_std_20)
  target_link_libraries(regard_${name} PUBLIC ${arg_USES} PRIVATE $<BUILD_INTERFACE:regard_flags> ${arg_PRIVATE})
endfunction()

# regard_room_tests(<name> [USES <target>...]): tests/<name>/*.cc become one program, regard_<name>_tests.
function(regard_room_tests name)
  cmake_parse_arguments(arg "" "" "USES" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  if(NOT sources)
    return()
  endif()
  add_executable(regard_${name}_tests ${sources})
  target_link_libraries(regard_${name}_tests PRIVATE regard::${name} ${arg_USES} regard_flags GTest::gtest_main GTest::gmock)
  target_compile_definitions(regard_${name}_tests PRIVATE
    REGARD_GOLDEN_DIR="${PROJECT_SOURCE_DIR}/tests/golden" REGARD_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  gtest_discover_tests(regard_${name}_tests TEST_PREFIX "${name}/" DISCOVERY_MODE PRE_TEST
                       DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 600)
endfunction()
