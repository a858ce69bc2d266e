# What nvcc makes of .cu files: PTX and cubin for each architecture. Nothing here links with CUDA. Without nvcc the variable
# DELTAD_NVCC is false and there is no target cuda_kernels.
if(DELTAD_SANITIZE)
  set(DELTAD_NVCC FALSE)  # minutes of compiling for what sanitizers cannot see into
  return()
endif()
find_program(DELTAD_NVCC nvcc PATHS /usr/local/cuda/bin)
find_program(DELTAD_PTXAS ptxas PATHS /usr/local/cuda/bin)
if(NOT DELTAD_NVCC OR NOT DELTAD_PTXAS)
  message(STATUS "No nvcc: CUDA kernels are not compiled, and the tests of their PTX are left out")
  set(DELTAD_NVCC FALSE)
  return()
endif()
find_program(DELTAD_CCACHE ccache)
# PTX names its source by its whole path (the tests' mutations read it there): what another checkout compiled is of no use.
set(DELTAD_NVCC_LAUNCHER)
if(DELTAD_CCACHE)
  set(DELTAD_NVCC_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR= CCACHE_HASHDIR=true ${DELTAD_CCACHE})
endif()
set(DELTAD_CUDA_ARCHITECTURES sm_80 sm_90a sm_100)

# deltad_cuda(TARGET FOLDER OUT): FOLDER/*.cu become OUT/ARCH/NAME.{ptx,cubin} and NAME.resources, ptxas's report of registers
# and memory. A file NAME_ARCH.cu is for that architecture alone.
function(deltad_cuda target folder out)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.cu)
  set(products)
  foreach(source ${sources})
    cmake_path(GET source STEM stem)
    foreach(arch ${DELTAD_CUDA_ARCHITECTURES})
      if(stem MATCHES "_(sm_[0-9]+a?)$" AND NOT CMAKE_MATCH_1 STREQUAL arch)
        continue()
      endif()
      set(base ${out}/${arch}/${stem})
      add_custom_command(
        OUTPUT ${base}.ptx
        COMMAND ${CMAKE_COMMAND} -E make_directory ${out}/${arch}
        COMMAND ${DELTAD_NVCC_LAUNCHER} ${DELTAD_NVCC} -c -ptx -lineinfo -arch=${arch} -std=c++20 -O3 -I${CMAKE_SOURCE_DIR} -Werror all-warnings
                -MD -MF ${base}.d -MT ${base}.ptx -o ${base}.ptx ${source}
        DEPENDS ${source}
        DEPFILE ${base}.d
        VERBATIM)
      add_custom_command(
        OUTPUT ${base}.cubin ${base}.resources
        COMMAND sh -c "$0 -arch=$1 -O3 -lineinfo -v $2.ptx -o $2.cubin > $2.resources 2>&1 || { cat $2.resources; exit 1; }"
                ${DELTAD_PTXAS} ${arch} ${base}
        DEPENDS ${base}.ptx
        VERBATIM)
      list(APPEND products ${base}.ptx ${base}.cubin)
    endforeach()
  endforeach()
  add_custom_target(${target} ALL DEPENDS ${products})
endfunction()

# deltad_fatbins(VARIABLE FOLDER IN): IN/ARCH/NAME.{ptx,cubin} of FOLDER/*.cu become IN/NAME.fatbin, with PTX for later GPUs; the
# list of these files is left in VARIABLE.
function(deltad_fatbins variable folder in)
  find_program(DELTAD_FATBINARY fatbinary PATHS /usr/local/cuda/bin REQUIRED)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.cu)
  set(made)
  foreach(source ${sources})
    cmake_path(GET source STEM stem)
    set(images)
    set(files)
    foreach(arch ${DELTAD_CUDA_ARCHITECTURES})
      if(stem MATCHES "_(sm_[0-9]+a?)$" AND NOT CMAKE_MATCH_1 STREQUAL arch)
        continue()
      endif()
      string(REPLACE "sm_" "" sm ${arch})
      list(APPEND images --image3=kind=elf,sm=${sm},file=${in}/${arch}/${stem}.cubin)
      list(APPEND files ${in}/${arch}/${stem}.cubin)
      if(NOT arch MATCHES "a$")  # PTX for an architecture with an "a" is for that one alone
        list(APPEND images --image3=kind=ptx,sm=${sm},file=${in}/${arch}/${stem}.ptx)
        list(APPEND files ${in}/${arch}/${stem}.ptx)
      endif()
    endforeach()
    add_custom_command(OUTPUT ${in}/${stem}.fatbin
      COMMAND ${DELTAD_FATBINARY} --64 --compress-all --create=${in}/${stem}.fatbin ${images}
      DEPENDS ${files} VERBATIM)
    list(APPEND made ${in}/${stem}.fatbin)
  endforeach()
  set(${variable} ${made} PARENT_SCOPE)
endfunction()

deltad_cuda(cuda_kernels kernels/cuda ${CMAKE_BINARY_DIR}/cuda)
execute_process(COMMAND ${DELTAD_NVCC} --version OUTPUT_VARIABLE DELTAD_NVCC_VERSION)
string(REGEX MATCH "V([0-9.]+)" DELTAD_NVCC_VERSION "${DELTAD_NVCC_VERSION}")
string(SUBSTRING "${DELTAD_NVCC_VERSION}" 1 -1 DELTAD_NVCC_VERSION)
