# How layers and tests are compiled: what a sanitized build (DELTAD_SANITIZE) does, and headers that are compiled once.
# Compiling is most of what a sanitized build costs, so most of it is not optimised.

if(DELTAD_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # Protobuf's headers lay their maps out differently under GCC's, the library of the system is built without.
  message(FATAL_ERROR "ThreadSanitizer wants Clang: cmake --preset tsan")
endif()
if(DELTAD_SANITIZE)
  add_compile_options(-fsanitize=${DELTAD_SANITIZE} -fno-sanitize-recover=all -O0 -g1)
  add_link_options(-fsanitize=${DELTAD_SANITIZE})
endif()

# Layers and tests that a run would wait for, were they optimised less: they work on numbers, or go through thousands of random
# events.
set(DELTAD_OPTIMISED kernels backend delta merge calibrate text kv engine router)
set(DELTAD_OPTIMISED_TESTS cuda engine contract)

# What nearly every file includes.
set(DELTAD_COMMON_HEADERS <algorithm> <array> <atomic> <bit> <cmath> <cstdint> <cstring> <filesystem> <functional> <map> <memory>
  <optional> <random> <set> <span> <string> <string_view> <thread> <utility> <vector> <fmt/format.h> <nlohmann/json.hpp>)

# deltad_precompiled(TARGET KIND header…): the target has these headers from the first target of its kind, which must have the
# same flags.
function(deltad_precompiled target kind)
  get_property(first GLOBAL PROPERTY deltad_precompiled_${kind})
  # What ccache needs to know such headers again.
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    target_compile_options(${target} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
  else()
    target_compile_options(${target} PRIVATE -fpch-preprocess)
  endif()
  if(first)
    target_precompile_headers(${target} REUSE_FROM ${first})
  else()
    target_precompile_headers(${target} PRIVATE ${ARGN})
    set_property(GLOBAL PROPERTY deltad_precompiled_${kind} ${target})
  endif()
endfunction()

# deltad_layer_flags(NAME): of the library deltad_NAME. Only where a build is sanitized are its headers compiled once: elsewhere,
# an include that is missing is to be found.
function(deltad_layer_flags name)
  if(NOT DELTAD_SANITIZE)
    if(CMAKE_BUILD_TYPE STREQUAL Release AND NOT name IN_LIST DELTAD_OPTIMISED)
      target_compile_options(deltad_${name} PRIVATE -O2)  # a sixth less compiling than CMake's -O3
    endif()
    return()
  endif()
  set(kind layers)
  if(name IN_LIST DELTAD_OPTIMISED)
    target_compile_options(deltad_${name} PRIVATE -O1)
    set(kind optimised_layers)
  endif()
  if(DELTAD_FUZZ)
    target_compile_options(deltad_${name} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
  if(NOT name STREQUAL kernels)  # its files have flags of their own
    deltad_precompiled(deltad_${name} ${kind} ${DELTAD_COMMON_HEADERS})
  endif()
endfunction()

# deltad_test_flags(TARGET NAME): of tests, by the name of their folder. They are compiled more often than they have to be fast.
# All know where the reference data are: GCC's compiled headers want the same macros everywhere.
function(deltad_test_flags target name)
  target_compile_definitions(${target} PRIVATE DELTAD_GOLDEN="${CMAKE_SOURCE_DIR}/tests/golden")
  if(name IN_LIST DELTAD_OPTIMISED_TESTS)
    target_compile_options(${target} PRIVATE -O1)
    set(kind ${name}_tests)  # they link other layers, and so have other macros
  else()
    target_compile_options(${target} PRIVATE -O0)
    set(kind tests)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${target} PRIVATE -Wno-array-bounds -Wno-stringop-overflow)  # wrong about std::string +, too
  endif()
  deltad_precompiled(${target} ${kind} ${DELTAD_COMMON_HEADERS} <gmock/gmock.h> <gtest/gtest.h>)
endfunction()
