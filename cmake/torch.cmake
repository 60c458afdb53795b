# libtorch as one imported target, regard_torch. find_package(Torch) of the PyPI wheel asks for a CUDA tool kit even
# where only its CPU library is linked, so the two libraries are named here. A user's own libtorch comes by
# CMAKE_PREFIX_PATH; else `make` has unpacked the pinned wheel into the cache.
set(REGARD_TORCH_VERSION 2.15.0)
if(NOT "$ENV{REGARD_CACHE}" STREQUAL "")
  set(regard_cache $ENV{REGARD_CACHE})
elseif(NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
  set(regard_cache $ENV{XDG_CACHE_HOME}/regard)
else()
  set(regard_cache $ENV{HOME}/.cache/regard)
endif()
set(regard_torch_hints ${regard_cache}/torch-${REGARD_TORCH_VERSION})

find_path(REGARD_TORCH_INCLUDE ATen/ATen.h HINTS ${CMAKE_PREFIX_PATH} ${regard_torch_hints} PATH_SUFFIXES include)
find_library(REGARD_TORCH_CPU torch_cpu HINTS ${CMAKE_PREFIX_PATH} ${regard_torch_hints} PATH_SUFFIXES lib)
find_library(REGARD_C10 c10 HINTS ${CMAKE_PREFIX_PATH} ${regard_torch_hints} PATH_SUFFIXES lib)
if(NOT REGARD_TORCH_INCLUDE OR NOT REGARD_TORCH_CPU OR NOT REGARD_C10)
  message(FATAL_ERROR "libtorch was not found in CMAKE_PREFIX_PATH or ${regard_torch_hints}: "
    "run 'make setup', name yours with -DCMAKE_PREFIX_PATH=..., or build without it with -DREGARD_TORCH=OFF")
endif()
get_filename_component(regard_torch_lib_dir ${REGARD_TORCH_CPU} DIRECTORY)

add_library(regard_torch INTERFACE)
target_include_directories(regard_torch SYSTEM INTERFACE
  ${REGARD_TORCH_INCLUDE} ${REGARD_TORCH_INCLUDE}/torch/csrc/api/include)
# --no-as-needed: operators register themselves when the library is loaded.
target_link_libraries(regard_torch INTERFACE -Wl,--no-as-needed ${REGARD_TORCH_CPU} ${REGARD_C10} -Wl,--as-needed)
target_link_options(regard_torch INTERFACE -Wl,-rpath,${regard_torch_lib_dir} -Wl,-rpath-link,${regard_torch_lib_dir})

# torch headers cost 10 to 30 seconds a file: all torch rooms share one precompiled header.
# Written once: a newer file at each configuration would rebuild every torch room.
if(NOT EXISTS ${PROJECT_BINARY_DIR}/torch_pch.cc)
  file(WRITE ${PROJECT_BINARY_DIR}/torch_pch.cc "")
endif()
add_library(regard_torch_pch STATIC ${PROJECT_BINARY_DIR}/torch_pch.cc)
target_link_libraries(regard_torch_pch PUBLIC regard_torch PRIVATE regard_flags)
target_precompile_headers(regard_torch_pch PRIVATE ${PROJECT_SOURCE_DIR}/cmake/torch_pch.h)

# regard_torch_room(<name> ...): a room whose sources use libtorch.
function(regard_torch_room name)
  regard_room(${name} ${ARGN})
  target_link_libraries(regard_${name} PUBLIC regard_torch)
  target_precompile_headers(regard_${name} REUSE_FROM regard_torch_pch)
  set_target_properties(regard_${name} PROPERTIES REGARD_TORCH_ROOM ON)
endfunction()
