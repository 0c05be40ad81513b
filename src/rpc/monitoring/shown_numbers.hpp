#pragma once

namespace amalgam::detail {

class engine_core;

/// With AMALGAM_METRICS in the environment ("127.0.0.1:9464"), one server of the process tells the
/// numbers of all its engines by HTTP, each with the label {"engine", its name}, which has a number
/// behind it where another one has that name. It starts with the first engine, and stays.
///
/// Threads: any.
/// Failure: throws error{invalid} for an address that is none, error{denied} for one that other
///          hosts can reach; if another process has the port, this one's numbers are not shown, and
///          a warning is logged.
/// Cost:    without the variable, a look at the environment for each engine.
void show_numbers_of(engine_core& core);
void hide_numbers_of(engine_core& core) noexcept;

}  // namespace amalgam::detail
