# How a sanitized build (DELTAD_SANITIZE) compiles, and headers that are compiled once. Compiling is most of what such a build
# costs, so most of it is not optimised.

if(DELTAD_SANITIZE)
  add_compile_options(-fsanitize=${DELTAD_SANITIZE} -fno-sanitize-recover=all -O0 -g1)
  add_link_options(-fsanitize=${DELTAD_SANITIZE})
endif()

# Layers that work on numbers, and their tests: unoptimised, a run would wait for their loops.
set(DELTAD_NUMBERS kernels backend delta merge calibrate)

# What nearly every file includes.
set(DELTAD_COMMON_HEADERS <algorithm> <array> <atomic> <bit> <cmath> <cstdint> <cstring> <filesystem> <functional> <map> <memory>
  <optional> <random> <set> <span> <string> <string_view> <thread> <utility> <vector> <fmt/format.h> <nlohmann/json.hpp>)

# What ccache needs to know such headers again.
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  add_compile_options("SHELL:-Xclang -fno-pch-timestamp")
else()
  add_compile_options(-fpch-preprocess)
endif()

# deltad_precompiled(TARGET KIND header…): the target has these headers from the first target of its kind, which must have the
# same flags.
function(deltad_precompiled target kind)
  get_target_property(links ${target} LINK_LIBRARIES)
  if(DELTAD_SANITIZE STREQUAL "thread" AND links MATCHES "deltad_(proto|grpc|deltad_parts)")
    return()  # protobuf's headers want a macro away there (CMakeLists.txt)
  endif()
  get_property(first GLOBAL PROPERTY deltad_precompiled_${kind})
  if(first)
    target_precompile_headers(${target} REUSE_FROM ${first})
  else()
    target_precompile_headers(${target} PRIVATE ${ARGN})
    set_property(GLOBAL PROPERTY deltad_precompiled_${kind} ${target})
  endif()
endfunction()

# deltad_layer_flags(NAME): of the library deltad_NAME. Headers are compiled once only where a build is sanitized: elsewhere,
# an include that is missing is to be found.
function(deltad_layer_flags name)
  if(NOT DELTAD_SANITIZE)
    return()
  endif()
  set(kind layers)
  if(name IN_LIST DELTAD_NUMBERS)
    target_compile_options(deltad_${name} PRIVATE -O1)
    set(kind numbers)
  endif()
  if(DELTAD_FUZZ)
    target_compile_options(deltad_${name} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
  if(NOT name STREQUAL kernels)
    deltad_precompiled(deltad_${name} ${kind} ${DELTAD_COMMON_HEADERS})
  endif()
endfunction()

# deltad_test_flags(TARGET NAME): of the tests of a layer. Nothing waits for them but where they work on numbers.
function(deltad_test_flags target name)
  set(kind tests)
  if(NOT DELTAD_SANITIZE)
    target_compile_options(${target} PRIVATE -O1)
  elseif(name IN_LIST DELTAD_NUMBERS)
    target_compile_options(${target} PRIVATE -O1)
    set(kind number_tests)
  endif()
  deltad_precompiled(${target} ${kind} ${DELTAD_COMMON_HEADERS} <gmock/gmock.h> <gtest/gtest.h>)
endfunction()
