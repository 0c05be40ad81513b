#include <cstdint>
#include <exception>
#include <new>

#include <fmt/format.h>

#include <amalgam/core/detail/in_words.hpp>
#include <amalgam/core/limited_log.hpp>
#include <amalgam/rpc/extension/thrown.hpp>
#include <amalgam/tasks/extension/exit_ult.hpp>

namespace amalgam::detail {

namespace {
constexpr std::string_view no_exception = "an exception not derived from std::exception";
constexpr const char* dropped = "a user's function threw; the exception is dropped";
}  // namespace

failure thrown_here(std::string_view what, errc otherwise) noexcept {
    try {
        try {
            throw;
        } catch (const error& why) {
            return {why.code().ok() ? status{otherwise} : why.code(), text_of(why)};
        } catch (const std::bad_alloc&) {
            return {{errc::no_memory}, {}};
        } catch (const std::exception& why) {
            return {{otherwise}, fmt::format("{} threw: {}", what, text_of(why))};
        } catch (...) {
            return {{otherwise}, fmt::format("{} threw {}", what, no_exception)};
        }
    } catch (...) {
        return {{otherwise}, {}};  // Out of memory: the code alone.
    }
}

failure thrown_there(std::string_view what) noexcept {
    status how{errc::handler_failed};
    try {
        try {
            throw;
        } catch (const error& why) {
            how.native = static_cast<std::int32_t>(why.code().code);
            return {how, fmt::format("{}: {}", name(why.code().code), text_of(why))};
        } catch (const std::exception& why) {
            return {how, text_of(why)};
        } catch (const exit_ult&) {
            return {how, fmt::format("{} ended by this_task::exit(), without an answer", what)};
        } catch (...) {
            return {how, fmt::format("{} threw {}", what, no_exception)};
        }
    } catch (...) {
        return {how, {}};
    }
}

void log_thrown(std::string_view what, std::string_view procedure) noexcept {
    try {
        const failure why = thrown_here(what, errc::handler_failed);
        limited_log(log_level::error, "rpc", dropped,
                    {{"function", what}, {"procedure", procedure}, {"why", why.sentence}});
    } catch (...) {
        // Not even logged.
    }
}

void log_thrown_in(std::string_view layer, std::string_view what) noexcept {
    try {
        const failure why = thrown_here(what, errc::handler_failed);
        limited_log(log_level::error, layer, dropped, {{"function", what}, {"why", why.sentence}});
    } catch (...) {
        // Not even logged.
    }
}

}  // namespace amalgam::detail
