#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace amalgam::tool {

/// A type as signatures name it: "map<string,vector<f64>>".
struct value_type {
    std::string name;              ///< "map"; of an enum its number: "u8".
    std::vector<value_type> of{};  ///< Of an array: its elements.
    std::size_t elements = 0;      ///< Of an array.
};

/// "i32(string,vector<f64>)".
struct call_signature {
    value_type result;
    std::vector<value_type> arguments;
};

/// Reads a signature, which comes from a peer.
/// Failure: throws error{invalid} for what is none, error{unsupported} for a type that has no JSON
///          form here, and names it.
call_signature parse_signature(std::string_view text);

/// As signatures have it.
std::string to_string(const value_type& type);

}  // namespace amalgam::tool
