// Tables of what toolkit_names.py lists, by the headers that a file included before this one: the
// emulated ones or the toolkit's.
#pragma once

#include <map>
#include <string>
#include <typeinfo>

namespace deltad::emulated_gpu {

// By name: a value, or a type as the compiler mangles it.
using Names = std::map<std::string, std::string>;
Names runtime_of_toolkit();    // cuda_runtime_api.h
Names libraries_of_toolkit();  // cublasLt.h, nccl.h: they bring templates of the runtime's names

#define VALUE(n) names[#n] = std::to_string(static_cast<long long>(n));
#define FUNCTION(n) names[#n] = typeid(decltype(&::n)).name();
#define FIELD(type, n) names[#type "::" #n] = typeid(decltype(type::n)).name();
#define SIZE(type) names["sizeof " #type] = std::to_string(sizeof(type));

}  // namespace deltad::emulated_gpu
