#include "callback.hpp"

#include <exception>

#include <amalgam/core/detail/in_words.hpp>
#include <amalgam/core/limited_log.hpp>

namespace amalgam::argobots {

namespace {

void log_words(const char* message, const char* thrown) noexcept {
    limited_log(log_level::error, "argobots", message, {{"what", thrown}});
}

}  // namespace

void log_escaped(const char* message) noexcept {
    try {
        throw;
    } catch (const detail::exit_ult&) {
        log_words(message, "an exit of the ULT, which is possible in a ULT's own function only");
    } catch (const std::exception& known) {
        log_words(message, detail::text_of(known));
    } catch (...) {
        log_words(message, "an exception not derived from std::exception");
    }
}

}  // namespace amalgam::argobots
