#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace amalgam::detail {

/// What a transport's shared object says of how it was built (plugin_abi_text), read without
/// loading it: loading runs code, and that of a sanitizer ends a program built without it.
/// Nothing: the file is not there, is no ELF file of this machine, or does not say.
std::optional<std::string> plugin_abi_of(const std::string& file);

/// "size of port_options is 56, here 64; sanitizer is address, here none"; empty: both are alike.
std::string plugin_abi_differences(std::string_view theirs, std::string_view ours);

}  // namespace amalgam::detail
