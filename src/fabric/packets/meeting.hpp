#pragma once

#include <string_view>

#include <amalgam/core/result.hpp>
#include <amalgam/core/uri.hpp>

/// What transports say of their URIs, and of the part in it that is about tcp, over which the ends
/// of an introduced_carrier meet.
namespace amalgam::detail {

/// uri "…": what; example: …
failure wrong_uri(const uri& where, status why, std::string_view what, std::string_view example);

/// Where the tcp port listens.
uri meeting_place(const uri& where);

/// What tcp said of the meeting place, said of the URI that has it.
failure retold(const uri& where, failure why, std::string_view example);

}  // namespace amalgam::detail
