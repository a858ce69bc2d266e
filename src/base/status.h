// Status and Result<T>: how functions report failure. No exceptions cross a module's border;
// third-party ones are caught where they arise. Each code is mapped once to HTTP
// (server/openai/errors) and to exit codes. A message says what was wrong, where, and what was
// expected.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace deltad {

enum class Code {
  kOk,
  kInvalidArgument,    // the caller's input is wrong (request, config, model or variant file)
  kNotFound,           // a name or file that does not exist
  kUnauthenticated,    // no key, or a wrong one
  kPermissionDenied,   // a right key that may not do this
  kUnimplemented,      // understood, but not supported
  kConflict,           // at odds with how things are: a name is taken, a thing is in use
  kResourceExhausted,  // a limit or budget is reached; trying later may help
  kUnavailable,        // loading, draining or unhealthy
  kDeadlineExceeded,
  kCancelled,
  kInternal,  // a fault of ours, or of the machine (disk, memory)
};

const char* code_name(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  // The same status with "context: " before its message.
  Status in(const std::string& context) const;
  // When trying again may help, in seconds; 0: nobody knows.
  int retry_after() const { return retry_after_; }
  Status with_retry_after(int seconds) && {
    retry_after_ = seconds;
    return std::move(*this);
  }

 private:
  Code code_ = Code::kOk;
  int retry_after_ = 0;
  std::string message_;
};

inline Status invalid_argument(std::string m) { return {Code::kInvalidArgument, std::move(m)}; }
inline Status not_found(std::string m) { return {Code::kNotFound, std::move(m)}; }
inline Status unauthenticated(std::string m) { return {Code::kUnauthenticated, std::move(m)}; }
inline Status permission_denied(std::string m) { return {Code::kPermissionDenied, std::move(m)}; }
inline Status unimplemented(std::string m) { return {Code::kUnimplemented, std::move(m)}; }
inline Status conflict(std::string m) { return {Code::kConflict, std::move(m)}; }
inline Status resource_exhausted(std::string m) { return {Code::kResourceExhausted, std::move(m)}; }
inline Status unavailable(std::string m) { return {Code::kUnavailable, std::move(m)}; }
inline Status cancelled(std::string m) { return {Code::kCancelled, std::move(m)}; }
inline Status internal_error(std::string m) { return {Code::kInternal, std::move(m)}; }

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}
  Result(Status status) : state_(std::move(status)) {
    CHECK(!std::get<Status>(state_).ok(), "Result made from an OK status");
  }

  bool ok() const { return std::holds_alternative<T>(state_); }
  Status status() const { return ok() ? Status() : std::get<Status>(state_); }
  T& value() {
    CHECK(ok(), "value() of a failed Result");
    return std::get<T>(state_);
  }
  const T& value() const {
    CHECK(ok(), "value() of a failed Result");
    return std::get<T>(state_);
  }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<Status, T> state_;
};

}  // namespace deltad

#define RETURN_IF_ERROR(expr)          \
  do {                                 \
    ::deltad::Status status_ = (expr); \
    if (!status_.ok()) return status_; \
  } while (0)

#define DELTAD_CONCAT_INNER(a, b) a##b
#define DELTAD_CONCAT(a, b) DELTAD_CONCAT_INNER(a, b)
// ASSIGN_OR_RETURN(auto x, f()): x = the value, or return the error from this function.
#define ASSIGN_OR_RETURN(lhs, expr) \
  ASSIGN_OR_RETURN_INNER(DELTAD_CONCAT(result_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_INNER(tmp, lhs, expr) \
  auto tmp = (expr);                           \
  if (!tmp.ok()) return tmp.status();          \
  lhs = std::move(*tmp)
