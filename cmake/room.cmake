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

# Tests are compiled once and run once: little optimisation is the fastest of both together.
set(regard_test_options $<$<CONFIG:Release>:-O1>)

# One precompiled header for all tests without libtorch. Not under sanitizers: clang-tidy reads that build, and GCC's
# precompiled headers are nothing to it.
function(regard_test_headers)
  if(REGARD_SANITIZE)
    return()
  endif()
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/test_pch.cc CONTENT "")
  add_library(regard_test_pch STATIC ${PROJECT_BINARY_DIR}/test_pch.cc)
  target_link_libraries(regard_test_pch PRIVATE regard_flags GTest::gtest GTest::gmock)
  target_compile_options(regard_test_pch PRIVATE ${regard_test_options})
  target_precompile_headers(regard_test_pch PRIVATE <gmock/gmock.h> <gtest/gtest.h> <algorithm> <cmath> <fstream>
    <functional> <random> <sstream> <string> <vector>)
endfunction()

# regard_test_program(<target> HEADERS regard_test_pch|regard_torch_pch): compiled as that precompiled header was.
function(regard_test_program program)
  cmake_parse_arguments(arg "" "HEADERS" "" ${ARGN})
  # With -fPIC; a program's default of -fPIE would not fit it.
  set_target_properties(${program} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${program} PRIVATE -fPIC)
  if(arg_HEADERS STREQUAL regard_test_pch)
    target_compile_options(${program} PRIVATE ${regard_test_options})
    if(REGARD_SANITIZE)
      return()
    endif()
  endif()
  target_precompile_headers(${program} REUSE_FROM ${arg_HEADERS})
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
  get_target_property(torch regard_${name} REGARD_TORCH_ROOM)
  if(torch)
    regard_test_program(regard_${name}_tests HEADERS regard_torch_pch)
  else()
    regard_test_program(regard_${name}_tests HEADERS regard_test_pch)
  endif()
  gtest_discover_tests(regard_${name}_tests TEST_PREFIX "${name}/" DISCOVERY_MODE PRE_TEST
                       DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 600)
endfunction()
