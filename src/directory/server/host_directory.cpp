#include <exception>

#include <amalgam/core/log.hpp>
#include <amalgam/directory/host_directory.hpp>
#include <amalgam/rpc/engine.hpp>

#include "directory/protocol/procedures.hpp"
#include "directory/server/record.hpp"

namespace amalgam {

void remember_host_directory(const std::vector<std::string>& words) noexcept {
    try {
        detail::directory_record().keep(words);
    } catch (const std::exception& why) {
        log(log_level::warn, "directory", why.what());
    }
}

void forget_host_directory() noexcept {
    try {
        detail::directory_record().forget();
    } catch (const std::exception&) {
        // Out of memory for its name.
    }
}

makes_way ask_to_make_way(const std::string& address) {
    constexpr std::chrono::seconds limit{2};
    namespace at = detail::at_directory;
    failure malformed;
    makes_way reply = makes_way::nobody;
    try {
        engine asks("shm://", {.name = "makes-way"});
        reply = asks.run([&] {
            const result<peer> there = asks.try_lookup(address);
            if (there.code() == errc::invalid) malformed = there.why();
            if (!there) return makes_way::nobody;
            const auto answer =
                asks.procedure<at::make_way>(at::make_way_name).on(*there).within(limit).try_call();
            // Its engine does not allow it, or an exception there.
            if (answer.code() == errc::denied || answer.code() == errc::handler_failed)
                return makes_way::no;
            if (!answer) return makes_way::nobody;
            return *answer ? makes_way::yes : makes_way::no;
        });
    } catch (const error& why) {
        log(log_level::info, "directory", "cannot ask a directory to make way",
            {{"address", address}, {"why", why.what()}});
    }
    if (!malformed.what.ok()) throw error(malformed.what, malformed.sentence);
    return reply;
}

}  // namespace amalgam
