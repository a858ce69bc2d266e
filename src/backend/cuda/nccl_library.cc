#include "backend/cuda/nccl_library.h"

#include <dlfcn.h>
#include <fmt/core.h>

namespace deltad {
namespace {

std::string version_text(int code) {
  return fmt::format("{}.{}.{}", code / 10000, code % 10000 / 100, code % 100);
}

Status missing(const std::string& file, std::string_view why) {
  return unimplemented(fmt::format(
      "NCCL cannot be used: {} ({}). The package libnccl2 brings it, or nvidia-nccl-cu{} "
      "of PyPI, whose lib folder $LD_LIBRARY_PATH must name",
      file, why, CUDART_VERSION / 1000));
}

// dlerror() begins with the file's name.
std::string reason(const std::string& file) {
  const char* error = dlerror();
  std::string text = error == nullptr ? "unknown reason" : error;
  if (text.starts_with(file + ": ")) text.erase(0, file.size() + 2);
  return text;
}

Status fill(NcclLibrary& nccl, void* library, const std::string& file) {
  Status status;
  const auto find = [&](const char* name, auto* function) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(library, name));
    if (*function == nullptr && status.ok())
      status = missing(file, fmt::format("it has no {}", name));
  };
  find("ncclGetVersion", &nccl.get_version);
  RETURN_IF_ERROR(status);
  int version = 0;
  if (nccl.get_version(&version) != ncclSuccess || version < kOldestNccl)
    return missing(file, fmt::format("it is version {}, and {} or later is needed",
                                     version_text(version), version_text(kOldestNccl)));
  find("ncclGetErrorString", &nccl.get_error_string);
  find("ncclGetLastError", &nccl.get_last_error);
  find("ncclGetUniqueId", &nccl.get_unique_id);
  find("ncclCommInitRankConfig", &nccl.comm_init_rank_config);
  find("ncclCommGetAsyncError", &nccl.comm_get_async_error);
  find("ncclCommFinalize", &nccl.comm_finalize);
  find("ncclCommDestroy", &nccl.comm_destroy);
  find("ncclCommAbort", &nccl.comm_abort);
  find("ncclAllGather", &nccl.all_gather);
  find("ncclSend", &nccl.send);
  find("ncclRecv", &nccl.receive);
  find("ncclGroupStart", &nccl.group_start);
  find("ncclGroupEnd", &nccl.group_end);
  return status;
}

}  // namespace

std::string NcclLibrary::version() const {
  int code = 0;
  return get_version(&code) == ncclSuccess ? version_text(code) : "of unknown version";
}

Status NcclLibrary::check(ncclResult_t result, ncclComm_t comm, std::string_view call,
                          std::string_view purpose) const {
  if (result == ncclSuccess || result == ncclInProgress) return {};
  const char* last = get_last_error(comm);
  const bool says_more = last != nullptr && *last != '\0';
  const bool outside = result == ncclSystemError || result == ncclRemoteError;
  return {outside ? Code::kUnavailable : Code::kInternal,
          fmt::format("{}: {}{}{}, while {}", call, get_error_string(result), says_more ? ": " : "",
                      says_more ? last : "", purpose)};
}

Result<NcclLibrary> load_nccl(const std::string& file) {
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return missing(file, reason(file));
  NcclLibrary nccl{};
  const Status status = fill(nccl, library, file);
  if (status.ok()) return nccl;  // for as long as the process
  dlclose(library);
  return status;
}

}  // namespace deltad
