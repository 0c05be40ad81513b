#pragma once

#include <utility>

#include <amalgam/tasks/extension/exit_ult.hpp>

namespace amalgam::argobots {

/// Logs what is being thrown, a few lines a second for each message. `message`: a literal that says
/// which function of the program it came from.
void log_escaped(const char* message) noexcept;

/// Calls a user's function where nothing may be thrown. False: it threw, which is logged.
template <typename Call>
bool called(const char* message, Call&& call) noexcept {
    try {
        call();
        return true;
    } catch (...) {
        log_escaped(message);
        return false;
    }
}

/// The same where the calling ULT may exit, which passes.
template <typename Call>
bool called_in_ult(const char* message, Call&& call) {
    try {
        call();
        return true;
    } catch (const detail::exit_ult&) {
        throw;
    } catch (...) {
        log_escaped(message);
        return false;
    }
}

}  // namespace amalgam::argobots
