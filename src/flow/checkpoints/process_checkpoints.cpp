#include "flow/checkpoints/process_checkpoints.hpp"

#include <new>
#include <system_error>
#include <utility>

#include <amalgam/core/detail/no_thread.hpp>

namespace amalgam::detail {

process_checkpoints::process_checkpoints(std::string folder, std::string process, std::string graph,
                                         std::size_t nodes, teller tell)
    : folder_(std::move(folder)),
      process_(std::move(process)),
      graph_(std::move(graph)),
      tell_(std::move(tell)),
      nodes_(nodes, [this](std::uint64_t number, std::vector<node_record> records) {
          const std::lock_guard hold(lock_);
          whole_.push_back({number, process_, graph_, std::move(records)});
          changed_.notify_one();
      }) {
    try {
        thread_ = std::thread([this] { write_all(); });
    } catch (const std::system_error& why) {
        throw no_thread("that writes checkpoints", why);
    }
}

process_checkpoints::~process_checkpoints() {
    {
        const std::lock_guard hold(lock_);
        over_ = true;
        changed_.notify_one();
    }
    thread_.join();
}

result<void> process_checkpoints::written(const process_record& what) const {
    try {
        return write_process_record(folder_, what);
    } catch (const std::bad_alloc&) {
        return {errc::no_memory, "no memory for it"};
    }
}

void process_checkpoints::write_all() {
    std::unique_lock hold(lock_);
    for (;;) {
        changed_.wait(hold, [this] { return over_ || !whole_.empty(); });
        if (whole_.empty()) return;
        const process_record next = std::move(whole_.front());
        whole_.pop_front();
        hold.unlock();
        tell_(next.number, written(next));
        hold.lock();
    }
}

}  // namespace amalgam::detail
