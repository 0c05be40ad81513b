#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <amalgam/rpc/peer_lost.hpp>
#include <amalgam/rpc/responder.hpp>

#include "link.hpp"

namespace ff::detail {

/// This process's part of a distributed program, from connecting to the end of all streams.
class distributed_part final : public run_base {
public:
    explicit distributed_part(group_registry& all);
    ~distributed_part() override;

    /// 0: all nodes of this group have ended, and what they sent has arrived. -1: why not is on
    /// stderr.
    int run(ff_node& whole);

    void fail(words why) noexcept override;
    bool failed() const noexcept override { return failed_; }

private:
    // plan.cpp: who is connected to whom.
    bool plan(ff_node& whole);
    bool check_groups() const;
    void connect_edge(std::uint32_t number, const edge& between);
    far_group& group(const std::string& name);
    ff_node* converter(const runner& end, bool out) const;

    // run.cpp
    void open();
    void define();
    void join();
    void join(far_group& there, std::chrono::steady_clock::time_point until);
    void wait_for_senders(std::chrono::steady_clock::time_point until);
    bool start();
    void give_up_start();
    void send_ends();
    void wait_for_ends();
    void close();
    void linger();

    // calls.cpp: what other groups ask.
    void take_join(const std::string& from, std::uint64_t graph,
                   const std::vector<std::uint64_t>& windows);
    void take_batch(std::uint64_t number, amalgam::const_bytes frames);
    void take_item(std::uint64_t number, std::uint32_t edge, amalgam::const_bytes bytes);
    void take_end(amalgam::responder<void> done, std::uint64_t batches);
    void answer_end(far_group& from, amalgam::responder<void>&& done);
    void take_failed(const std::string& why);
    void lose(const amalgam::peer& who, amalgam::status why);
    far_group* sender(const amalgam::peer& who);
    far_edge* edge_to(std::uint32_t number);
    far_edge* edge_at(std::uint32_t number, bool out);
    template <typename Take>
    void from_sender(Take take);
    void keep(far_group& from, std::uint64_t number, std::vector<std::byte> frames);
    bool count_frames(far_group& from, std::uint64_t number, amalgam::const_bytes frames);
    bool count(far_edge& edge, std::uint64_t batch, const frame& head);
    template <typename Take>
    void each_counted(amalgam::const_bytes frames, Take take);
    void take_frames(amalgam::const_bytes frames);
    void took(far_group& from);

    group_registry& all_;
    const group_settings* mine_ = nullptr;
    std::shared_ptr<network> net_;
    std::vector<std::shared_ptr<runner>> runners_;  // mine
    std::vector<std::unique_ptr<far_edge>> edges_;  // by number; null: not mine, or inside
    std::map<std::string, std::unique_ptr<far_group>> groups_;
    std::uint64_t graph_ = 0;  // the same in all processes

    amalgam::peer_lost_subscription lost_;
    std::mutex lock_;
    std::condition_variable changed_;
    std::atomic<bool> failed_{false};
    bool over_ = false;
    struct early {
        std::map<std::uint64_t, std::vector<std::byte>> batches;  // that came before their turn
        std::optional<std::pair<std::uint64_t, amalgam::responder<void>>> end;
    };
    std::map<const far_group*, early> early_;
    std::thread lingers_;
    std::unique_ptr<amalgam::engine> engine_;  // `over`, which what runs in its end may use
};

}  // namespace ff::detail
