#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace amalgam::detail {

/// How a transport's shared object was built (its plugin_abi_text), read without loading it:
/// loading runs code, and a sanitizer's runtime ends a program built without it. Empty: the file is
/// missing, is not an ELF file for this machine, or does not say.
std::optional<std::string> plugin_abi_of(const std::string& file);

/// For example "size of port_options is 56, here 64; sanitizer is address, here none". Empty: no
/// difference.
std::string plugin_abi_differences(std::string_view theirs, std::string_view ours);

}  // namespace amalgam::detail
