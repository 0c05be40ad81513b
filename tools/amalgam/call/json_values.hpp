#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <amalgam/core/bytes.hpp>
#include <amalgam/rpc/raw_call.hpp>

#include "call/signature.hpp"

namespace amalgam::tool {

using json = nlohmann::json;

/// Parses the arguments of a call, a JSON list.
/// Failure: throws error{invalid} for what is none, or is nested deeper than 64.
json parse_arguments(std::string_view text);

/// Encodes them as the signature says. An optional is null or its value; a map with text as keys is
/// an object, any other a list of pairs; a variant is [number of the alternative, value]; a char is
/// a text of one; a number beyond JSON's is refused, NaN and infinity are "nan", "inf", "-inf".
/// Failure: throws error{invalid} that names the argument, what was expected, and an example.
raw_values encode(const call_signature& signature, const json& arguments);

/// The result of a call; null for void.
/// Failure: throws error{mismatch} if the bytes do not fit the type.
json decode(const value_type& type, const raw_values& values);

/// On one line. Text that is no UTF-8 has its bytes replaced.
std::string to_text(const json& value);

}  // namespace amalgam::tool
