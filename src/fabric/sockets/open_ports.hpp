#pragma once

#include <string>
#include <string_view>

#include <amalgam/core/result.hpp>
#include <amalgam/core/uri.hpp>
#include <amalgam/fabric/transport.hpp>

#include "fabric/sockets/binding.hpp"

/// A port that other hosts can reach, and that asks nobody who they are, opens only if its user
/// says so: decision 0019.
namespace amalgam::detail {

/// The option of a URI that says so: `?insecure=yes`.
inline constexpr std::string_view insecure_option = "insecure";

/// Whether the URI or the options say so.
/// Failure: `invalid` for a value that is neither yes nor no.
result<bool> means_insecure(const uri& where, const port_options& options);

/// Whether other hosts can connect.
bool is_open_port(const binding& chosen) noexcept;

/// What protects a port that neither encrypts nor asks for keys: part of a sentence, for people.
std::string explain_who_reaches(const binding& chosen);

/// The refusal, `denied`, with both ways out. `what` can be reached: "this port".
failure refuse_open_port(const uri& where, std::string_view what = "this port");

}  // namespace amalgam::detail
