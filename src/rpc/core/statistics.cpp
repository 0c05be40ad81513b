#include <amalgam/core/log.hpp>

#include "rpc/core/core.hpp"
#include "rpc/statistics/statistics_file.hpp"

// What an engine counts, from its start to the file at its end.

namespace amalgam::detail {

engine_statistics engine_core::read_statistics() {
    check_not_forked();
    if (!counts_) {
        throw error(errc::invalid,
                    "this engine keeps no statistics; to keep them, set engine_options::statistics;"
                    " example: {.statistics = am::statistics_options{}}");
    }
    engine_statistics all;
    try {
        on_stream([&] { all = counts_->read(); });
    } catch (const error& why) {
        if (why.code() != errc::closed) throw;
        all = counts_->read();  // The stream adds no row any more.
    }
    return all;
}

std::string engine_core::statistics_file(std::string_view asked) const {
    const std::string_view own =
        options_.statistics ? std::string_view(options_.statistics->file) : std::string_view();
    return file_of_this_process(asked.empty() ? own : asked, options_.name);
}

/// At the end, when nothing is added any more but by handlers in pools of users.
void engine_core::write_last_statistics() noexcept {
    if (!counts_ || options_.statistics->file.empty()) return;
    try {
        write_statistics_file(statistics_file({}), to_json(counts_->read()));
    } catch (const std::exception& why) {
        log(log_level::warn, "rpc", why.what(), {{"engine", options_.name}});
    }
}

}  // namespace amalgam::detail
