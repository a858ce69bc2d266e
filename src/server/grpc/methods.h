// The methods of proto/deltad/v1, and what each asks of its caller. A service cannot answer one
// that has no line here. Pure.
#pragma once

#include <optional>
#include <string_view>

#include "server/access/need.h"
#include "server/metrics.h"

namespace google::protobuf {
class MethodDescriptor;
}

namespace deltad {

// Whether a call takes a place among its key's requests, and waits for the key's tokens.
enum class Metered { kNo, kYes };

// Every member has to be given: a method without a need does not compile.
struct KnownMethod {
  constexpr KnownMethod(std::string_view name, Route route, Need need, Metered metered)
      : name(name), route(route), need(need), metered(metered) {}

  std::string_view name;  // "Service/Method"
  Route route;            // what it is counted as: that of HTTP
  Need need;
  Metered metered;
};

inline constexpr KnownMethod kMethods[] = {
    {"Inference/Generate", Route::kCompletions, Need::kInference, Metered::kYes},
    {"Inference/GenerateStream", Route::kCompletions, Need::kInference, Metered::kYes},
    {"Inference/Chat", Route::kChat, Need::kInference, Metered::kYes},
    {"Inference/ChatStream", Route::kChat, Need::kInference, Metered::kYes},
    {"Inference/Tokenize", Route::kTokenize, Need::kInference, Metered::kYes},
    {"Inference/Detokenize", Route::kDetokenize, Need::kInference, Metered::kYes},
    {"Inference/ListModels", Route::kModels, Need::kInference, Metered::kNo},
    {"Admin/ListVariants", Route::kAdmin, Need::kAdmin, Metered::kNo},
    {"Admin/GetVariant", Route::kAdmin, Need::kAdmin, Metered::kNo},
    {"Admin/AddVariant", Route::kAdmin, Need::kAdmin, Metered::kNo},
    {"Admin/ReplaceVariant", Route::kAdmin, Need::kAdmin, Metered::kNo},
    {"Admin/RemoveVariant", Route::kAdmin, Need::kAdmin, Metered::kNo},
    {"Admin/PinVariant", Route::kAdmin, Need::kAdmin, Metered::kNo},
    {"Admin/UnpinVariant", Route::kAdmin, Need::kAdmin, Metered::kNo},
    {"Admin/PrefetchVariant", Route::kAdmin, Need::kAdmin, Metered::kNo},
    {"Admin/EvictVariant", Route::kAdmin, Need::kAdmin, Metered::kNo},
    {"Admin/SetRateLimit", Route::kAdmin, Need::kAdmin, Metered::kNo},
    {"Admin/GetCache", Route::kAdmin, Need::kAdmin, Metered::kNo},
    {"Admin/GetPool", Route::kAdmin, Need::kAdmin, Metered::kNo},
    {"Admin/AddPoolAdapter", Route::kAdmin, Need::kAdmin, Metered::kNo},
    {"Admin/GetPoolAdapter", Route::kAdmin, Need::kAdmin, Metered::kNo},
    {"Admin/RemovePoolAdapter", Route::kAdmin, Need::kAdmin, Metered::kNo},
    {"Admin/SetPoolBudget", Route::kAdmin, Need::kAdmin, Metered::kNo},
    {"Admin/GetPoolOperation", Route::kAdmin, Need::kAdmin, Metered::kNo},
    {"Admin/CancelPoolOperation", Route::kAdmin, Need::kAdmin, Metered::kNo},
};

// Null: there is none of this name.
constexpr const KnownMethod* find_method(std::string_view name) {
  for (const KnownMethod& method : kMethods)
    if (method.name == name) return &method;
  return nullptr;
}

// The method of this name; one that is not known does not compile.
consteval const KnownMethod& known_method(std::string_view name) {
  const KnownMethod* method = find_method(name);
  if (method == nullptr) throw "a method that kMethods does not list";
  return *method;
}

// None: nothing was decided for it.
std::optional<Need> need_of(const google::protobuf::MethodDescriptor& method);

}  // namespace deltad
