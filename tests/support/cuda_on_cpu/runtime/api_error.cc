// Errors of the CUDA runtime: the last one of a thread, names and texts.
#include <array>
#include <utility>

#include "tests/support/cuda_on_cpu/runtime/call.h"

using namespace deltad::emulated_gpu;

namespace {

struct Text {
  cudaError_t error;
  const char* name;
  const char* text;
};

#define ERROR_TEXT(name, text) \
  { name, #name, text }
constexpr auto kTexts = std::to_array<Text>({
    ERROR_TEXT(cudaSuccess, "no error"),
    ERROR_TEXT(cudaErrorInvalidValue, "invalid argument"),
    ERROR_TEXT(cudaErrorMemoryAllocation, "out of memory"),
    ERROR_TEXT(cudaErrorInitializationError, "initialization error"),
    ERROR_TEXT(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    ERROR_TEXT(cudaErrorInvalidDevicePointer, "invalid device pointer"),
    ERROR_TEXT(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    ERROR_TEXT(cudaErrorInsufficientDriver,
               "CUDA driver version is insufficient for CUDA runtime version"),
    ERROR_TEXT(cudaErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or unavailable"),
    ERROR_TEXT(cudaErrorInvalidDeviceFunction, "invalid device function"),
    ERROR_TEXT(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ERROR_TEXT(cudaErrorInvalidDevice, "invalid device ordinal"),
    ERROR_TEXT(cudaErrorInvalidKernelImage, "device kernel image is invalid"),
    ERROR_TEXT(cudaErrorNoKernelImageForDevice,
               "no kernel image is available for execution on the device"),
    ERROR_TEXT(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
    ERROR_TEXT(cudaErrorPeerAccessUnsupported,
               "peer access is not supported between these two devices"),
    ERROR_TEXT(cudaErrorOperatingSystem, "OS call failed or operation not supported on this OS"),
    ERROR_TEXT(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ERROR_TEXT(cudaErrorSymbolNotFound, "named symbol not found"),
    ERROR_TEXT(cudaErrorNotReady, "device not ready"),
    ERROR_TEXT(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    ERROR_TEXT(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    ERROR_TEXT(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    ERROR_TEXT(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    ERROR_TEXT(cudaErrorPeerAccessNotEnabled, "peer access has not been enabled"),
    ERROR_TEXT(cudaErrorAssert, "device-side assert triggered"),
    ERROR_TEXT(cudaErrorHostMemoryAlreadyRegistered,
               "part or all of the requested memory range is already mapped"),
    ERROR_TEXT(cudaErrorHostMemoryNotRegistered,
               "pointer does not correspond to a registered memory region"),
    ERROR_TEXT(cudaErrorHardwareStackError, "hardware stack error"),
    ERROR_TEXT(cudaErrorIllegalInstruction, "an illegal instruction was encountered"),
    ERROR_TEXT(cudaErrorMisalignedAddress, "misaligned address"),
    ERROR_TEXT(cudaErrorInvalidAddressSpace,
               "operation not supported on global/shared address space"),
    ERROR_TEXT(cudaErrorInvalidPc, "invalid program counter"),
    ERROR_TEXT(cudaErrorLaunchFailure, "unspecified launch failure"),
    ERROR_TEXT(cudaErrorNotPermitted, "operation not permitted"),
    ERROR_TEXT(cudaErrorNotSupported, "operation not supported"),
    ERROR_TEXT(cudaErrorStreamCaptureUnsupported,
               "operation not permitted when stream is capturing"),
    ERROR_TEXT(cudaErrorStreamCaptureInvalidated,
               "operation failed due to a previous error during capture"),
    ERROR_TEXT(cudaErrorStreamCaptureMerge,
               "operation would result in a merge of separate capture sequences"),
    ERROR_TEXT(cudaErrorStreamCaptureUnmatched, "capture was not initiated in this stream"),
    ERROR_TEXT(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    ERROR_TEXT(cudaErrorStreamCaptureIsolation,
               "dependency created on uncaptured work in another stream"),
    ERROR_TEXT(cudaErrorStreamCaptureImplicit,
               "operation would make the legacy stream depend on a capturing blocking stream"),
    ERROR_TEXT(cudaErrorCapturedEvent,
               "operation not permitted on an event last recorded in a capturing stream"),
    ERROR_TEXT(cudaErrorStreamCaptureWrongThread,
               "attempt to terminate a thread-local capture sequence from another thread"),
    ERROR_TEXT(cudaErrorTimeout, "wait operation timed out"),
    ERROR_TEXT(cudaErrorGraphExecUpdateFailure,
               "the graph update was not performed because it included changes which violated "
               "constraints specific to instantiated graph update"),
    ERROR_TEXT(cudaErrorUnknown, "unknown error"),
});

}  // namespace

const char* cudaGetErrorName(cudaError_t error) {
  for (const Text& text : kTexts) {
    if (text.error == error) return text.name;
  }
  return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  for (const Text& text : kTexts) {
    if (text.error == error) return text.text;
  }
  return "unrecognized error code";
}

cudaError_t cudaPeekAtLastError(void) { return last_error(); }

// An error that sticks stays.
cudaError_t cudaGetLastError(void) {
  const deltad::MutexLock lock(gpu().mutex);
  const cudaError_t sticky = gpu().devices[static_cast<size_t>(current_device())].error;
  return std::exchange(last_error(), sticky);
}
