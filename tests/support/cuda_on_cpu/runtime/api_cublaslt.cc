// cuBLASLt: descriptors, the choice of an algorithm, and products as work of a stream.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "tests/support/cuda_on_cpu/runtime/include/cublasLt.h"
#include "tests/support/cuda_on_cpu/runtime/matrix_product.h"
#include "tests/support/cuda_on_cpu/runtime/stream.h"

using namespace deltad::emulated_gpu;

struct cublasLtContext {
  int device;
};

namespace {

struct MatmulDesc {
  int32_t compute, scale, pointer_mode, transpose_a, transpose_b;
};
struct Preference {
  uint64_t workspace_bytes;
  uint32_t reductions;
};

// Descriptors are plain memory of a size that the header gives.
template <class T, class Opaque>
T get(const Opaque* opaque) {
  static_assert(sizeof(T) <= sizeof(Opaque));
  T value;
  std::memcpy(&value, opaque, sizeof value);
  return value;
}
template <class T, class Opaque>
void put(Opaque* opaque, const T& value) {
  static_assert(sizeof(T) <= sizeof(Opaque));
  std::memcpy(opaque, &value, sizeof value);
}

cublasStatus_t status_of(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return CUBLAS_STATUS_SUCCESS;
    case cudaErrorMemoryAllocation:
      return CUBLAS_STATUS_ALLOC_FAILED;
    case cudaErrorInvalidValue:
    case cudaErrorInvalidResourceHandle:
      return CUBLAS_STATUS_INVALID_VALUE;
    case cudaErrorNotSupported:
      return CUBLAS_STATUS_NOT_SUPPORTED;
    default:
      return CUBLAS_STATUS_EXECUTION_FAILED;
  }
}

template <class T, class Opaque>
cublasStatus_t create(Call& call, Opaque** out, const char* kind, const T& value) {
  return status_of(call.make([&](Gpu& gpu) -> cudaError_t {
    if (out == nullptr) return cudaErrorInvalidValue;
    *out = new Opaque{};
    put(*out, value);
    gpu.handles.add_plain(*out, kind, call.site());
    return cudaSuccess;
  }));
}

template <class Opaque>
cublasStatus_t destroy(Call& call, Opaque* object) {
  return status_of(call.make([&](Gpu& gpu) -> cudaError_t {
    if (!gpu.handles.remove_plain(object)) {
      return call.misuse(cudaErrorInvalidValue, "no such object");
    }
    delete object;
    return cudaSuccess;
  }));
}

// Sets a field, which must have the size that the caller says.
template <class Field>
cudaError_t assign(Field* field, const void* buf, size_t bytes) {
  if (buf == nullptr || bytes != sizeof *field) return cudaErrorInvalidValue;
  std::memcpy(field, buf, bytes);
  return cudaSuccess;
}

cudaError_t set(MatmulDesc& d, cublasLtMatmulDescAttributes_t attr, const void* buf, size_t bytes) {
  switch (attr) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
      return assign(&d.compute, buf, bytes);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
      return assign(&d.scale, buf, bytes);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      return assign(&d.pointer_mode, buf, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return assign(&d.transpose_a, buf, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return assign(&d.transpose_b, buf, bytes);
  }
  return cudaErrorInvalidValue;
}

cudaError_t set(Layout& l, cublasLtMatrixLayoutAttribute_t attr, const void* buf, size_t bytes) {
  switch (attr) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      return assign(&l.type, buf, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return assign(&l.order, buf, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return assign(&l.rows, buf, bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return assign(&l.columns, buf, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return assign(&l.ld, buf, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return assign(&l.batches, buf, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return assign(&l.stride, buf, bytes);
  }
  return cudaErrorInvalidValue;
}

cudaError_t set(Preference& p, cublasLtMatmulPreferenceAttributes_t attr, const void* buf,
                size_t bytes) {
  uint32_t mode = 0;
  switch (attr) {
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
      return assign(&mode, buf, bytes);  // the one there is
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return assign(&p.workspace_bytes, buf, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return assign(&p.reductions, buf, bytes);
  }
  return cudaErrorInvalidValue;
}

template <class T, class Opaque, class Attribute>
cublasStatus_t set_attribute(Call& call, Opaque* object, Attribute attr, const void* buf,
                             size_t bytes) {
  return status_of(call.make([&](Gpu& gpu) -> cudaError_t {
    if (!gpu.handles.has_plain(object)) return call.misuse(cudaErrorInvalidValue, "no such object");
    T value = get<T>(object);
    const cudaError_t error = set(value, attr, buf, bytes);
    put(object, value);
    return error;
  }));
}

MatrixProduct product_of(const MatmulDesc& desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                         cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
  MatrixProduct product = {};
  product.a = get<Layout>(a), product.b = get<Layout>(b);
  product.c = get<Layout>(c), product.d = get<Layout>(d);
  product.transpose_a = desc.transpose_a == CUBLAS_OP_T;
  product.transpose_b = desc.transpose_b == CUBLAS_OP_T;
  return product;
}

}  // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t* lightHandle) {
  EMULATED_CALL(cublasLtCreate);
  return create(call, lightHandle, "cuBLASLt handle", current_device());
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t lightHandle) {
  EMULATED_CALL(cublasLtDestroy, CallKind::kReleases);
  return destroy(call, lightHandle);
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR:
      return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_LICENSE_ERROR:
      return "CUBLAS_STATUS_LICENSE_ERROR";
  }
  return "CUBLAS_STATUS_UNKNOWN";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* matmulDesc,
                                        cublasComputeType_t computeType, cudaDataType_t scaleType) {
  EMULATED_CALL(cublasLtMatmulDescCreate);
  return create(call, matmulDesc, "cuBLASLt operation",
                MatmulDesc{computeType, scaleType, 0, CUBLAS_OP_N, CUBLAS_OP_N});
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t matmulDesc) {
  EMULATED_CALL(cublasLtMatmulDescDestroy, CallKind::kReleases);
  return destroy(call, matmulDesc);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t matmulDesc,
                                              cublasLtMatmulDescAttributes_t attr, const void* buf,
                                              size_t sizeInBytes) {
  EMULATED_CALL(cublasLtMatmulDescSetAttribute);
  return set_attribute<MatmulDesc>(call, matmulDesc, attr, buf, sizeInBytes);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* matLayout, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld) {
  EMULATED_CALL(cublasLtMatrixLayoutCreate);
  return create(call, matLayout, "cuBLASLt layout",
                Layout{type, CUBLASLT_ORDER_COL, rows, cols, ld, 1, 0});
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t matLayout) {
  EMULATED_CALL(cublasLtMatrixLayoutDestroy, CallKind::kReleases);
  return destroy(call, matLayout);
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t matLayout,
                                                cublasLtMatrixLayoutAttribute_t attr,
                                                const void* buf, size_t sizeInBytes) {
  EMULATED_CALL(cublasLtMatrixLayoutSetAttribute);
  return set_attribute<Layout>(call, matLayout, attr, buf, sizeInBytes);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* pref) {
  EMULATED_CALL(cublasLtMatmulPreferenceCreate);
  return create(call, pref, "cuBLASLt preference", Preference{0, CUBLASLT_REDUCTION_SCHEME_MASK});
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t pref) {
  EMULATED_CALL(cublasLtMatmulPreferenceDestroy, CallKind::kReleases);
  return destroy(call, pref);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref,
                                                    cublasLtMatmulPreferenceAttributes_t attr,
                                                    const void* buf, size_t sizeInBytes) {
  EMULATED_CALL(cublasLtMatmulPreferenceSetAttribute);
  return set_attribute<Preference>(call, pref, attr, buf, sizeInBytes);
}

// As the real one, it splits sums of few columns where it may, and takes larger tiles for many: so
// the bits of a row depend on how many there are, unless one algorithm is kept for all.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t operationDesc, cublasLtMatrixLayout_t Adesc,
    cublasLtMatrixLayout_t Bdesc, cublasLtMatrixLayout_t Cdesc, cublasLtMatrixLayout_t Ddesc,
    cublasLtMatmulPreference_t preference, int requestedAlgoCount,
    cublasLtMatmulHeuristicResult_t heuristicResultsArray[], int* returnAlgoCount) {
  EMULATED_CALL(cublasLtMatmulAlgoGetHeuristic);
  return status_of(call.make([&](Gpu& gpu) -> cudaError_t {
    for (const void* object :
         {static_cast<const void*>(lightHandle), static_cast<const void*>(operationDesc),
          static_cast<const void*>(Adesc), static_cast<const void*>(Bdesc),
          static_cast<const void*>(Cdesc), static_cast<const void*>(Ddesc),
          static_cast<const void*>(preference)}) {
      if (!gpu.handles.has_plain(object)) {
        return call.misuse(cudaErrorInvalidValue, "no such object");
      }
    }
    const Preference wish = get<Preference>(preference);
    MatrixProduct product = product_of(get<MatmulDesc>(operationDesc), Adesc, Bdesc, Cdesc, Ddesc);
    *returnAlgoCount = 0;
    const int32_t id = product.n() > 64 ? 1 : 0;
    const int32_t best = product.n() <= 16 ? 4 : product.n() <= 64 ? 2 : 1;
    for (const int32_t splits : {best, 1}) {
      if (*returnAlgoCount == requestedAlgoCount) break;
      const auto reduction =
          splits == 1 ? CUBLASLT_REDUCTION_SCHEME_NONE : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
      product.algorithm = {kAlgorithmMark, id, splits, reduction};
      if (splits > 1 && (wish.reductions & reduction) == 0) continue;
      if (product.workspace_bytes() > wish.workspace_bytes) continue;
      if (splits == 1 && *returnAlgoCount == 1 && best == 1) break;  // it is there already
      cublasLtMatmulHeuristicResult_t& result = heuristicResultsArray[(*returnAlgoCount)++];
      result = {};
      put(&result.algo, product.algorithm);
      result.workspaceSize = product.workspace_bytes();
      result.wavesCount = 1;
    }
    return *returnAlgoCount > 0 ? cudaSuccess : cudaErrorNotSupported;
  }));
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attr,
                                                    void* buf, size_t sizeInBytes,
                                                    size_t* sizeWritten) {
  EMULATED_CALL(cublasLtMatmulAlgoConfigGetAttribute);
  return status_of(call.make([&](Gpu&) -> cudaError_t {
    const Algorithm algorithm = get<Algorithm>(algo);
    if (algorithm.mark != kAlgorithmMark || sizeInBytes < sizeof(int32_t)) {
      return cudaErrorInvalidValue;
    }
    const int32_t value = attr == CUBLASLT_ALGO_CONFIG_SPLITK_NUM         ? algorithm.splits
                          : attr == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME ? algorithm.reduction
                                                                          : algorithm.id;
    std::memcpy(buf, &value, sizeof value);
    if (sizeWritten != nullptr) *sizeWritten = sizeof value;
    return cudaSuccess;
  }));
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t computeDesc,
                              const void* alpha, const void* A, cublasLtMatrixLayout_t Adesc,
                              const void* B, cublasLtMatrixLayout_t Bdesc, const void* beta,
                              const void* C, cublasLtMatrixLayout_t Cdesc, void* D,
                              cublasLtMatrixLayout_t Ddesc, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, size_t workspaceSizeInBytes, cudaStream_t stream) {
  EMULATED_CALL(cublasLtMatmul);
  return status_of(call.make([&](Gpu& gpu) -> cudaError_t {
    CUstream_st* in = stream_of(call, gpu, stream);
    if (in == nullptr) return cudaErrorInvalidResourceHandle;
    if (!gpu.handles.has_plain(lightHandle)) return call.misuse(cudaErrorInvalidValue, "no handle");
    if (lightHandle->device != in->device) {
      return call.misuse(cudaErrorInvalidValue, "a handle of another device than the stream's");
    }
    const MatmulDesc desc = get<MatmulDesc>(computeDesc);
    if ((desc.compute != CUBLAS_COMPUTE_32F && desc.compute != CUBLAS_COMPUTE_32F_PEDANTIC) ||
        desc.scale != CUDA_R_32F || desc.pointer_mode != 0) {
      return cudaErrorNotSupported;
    }
    MatrixProduct product = product_of(desc, Adesc, Bdesc, Cdesc, Ddesc);
    if (product.d.type == CUDA_R_16F) return cudaErrorNotSupported;
    product.at_a = A, product.at_b = B, product.at_c = C, product.at_d = D;
    std::memcpy(&product.alpha, alpha, sizeof product.alpha);
    std::memcpy(&product.beta, beta, sizeof product.beta);
    if (const std::string_view wrong = product.wrong(); !wrong.empty()) {
      return call.misuse(cudaErrorInvalidValue, std::string(wrong));
    }
    if (algo == nullptr) {
      return call.misuse(cudaErrorInvalidValue,
                         "no algorithm: which one is taken would follow from the size");
    }
    product.algorithm = get<Algorithm>(algo);
    if (product.algorithm.mark != kAlgorithmMark) {
      return call.misuse(cudaErrorInvalidValue, "an algorithm that nobody chose");
    }
    product.workspace = workspace;
    if (product.workspace_bytes() > workspaceSizeInBytes) {
      return call.misuse(cudaErrorInvalidValue, "too small a workspace for the algorithm");
    }
    Work work = work_of(call, *in, WorkKind::kKernel);
    work.uses = {A, B, C, D, workspace};
    work.run = [product](Gpu& g, Operation& operation) { product.run(g, operation); };
    return hand_over(gpu, *in, std::move(work));
  }));
}
