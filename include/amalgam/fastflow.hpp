#pragma once

#if !__has_include(<ff/ff.hpp>)
#error "amalgam/fastflow.hpp needs FastFlow: pass -I$FASTFLOW_ROOT, the folder that has ff/ff.hpp"
#endif

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ff/ff.hpp>

#include <amalgam/core/alias.hpp>
#include <amalgam/core/detail/function.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/flow/detail/fastflow_in.hpp>
#include <amalgam/flow/detail/fastflow_out.hpp>
#include <amalgam/flow/fastflow_options.hpp>
#include <amalgam/rpc/archive.hpp>
#include <amalgam/rpc/type_name.hpp>

/// Nodes that distribute FastFlow programs. Cut a pipeline into programs: one ends with a sender,
/// the next starts with a receiver, and the stages between stay as they are.
///
///     numbers first(1000);
///     am::fastflow_sender<job> to("tcp://node7:7000");
///     ff::ff_Pipe<> pipe(first, to);
///     return pipe.run_and_wait_end();
///
/// and on node7, started before or after:
///
///     am::fastflow_receiver<job> from("tcp://eth0:7000");
///     printer last;
///     ff::ff_Pipe<> pipe(from, last);
///     return pipe.run_and_wait_end();
///
/// Needs FastFlow's headers on the include path, and amalgam::flow to link. New programs are better
/// written as a graph of amalgam/flow: its groups need no addresses, and its nodes no threads.
namespace amalgam {

/// First node of a pipeline, emitter of a farm, or left worker of an all-to-all: emits the items
/// sent by senders in other processes.
///
///     fastflow_receiver<job> from("shm://G2");                        // one sender
///     fastflow_receiver<job> from({{"shm://G2", "tcp://eth0:7000"}}); // one sender for each
///     fastflow_receiver<job> from("tcp://eth0:7000", 8);              // eight
///
/// Items of one sender arrive in order; items of different senders interleave. Each is created with
/// `new T` and owned by the next node. Ends when all senders have ended.
/// Owner:   owns its engine, which listens from the constructor on. May be destroyed when the
///          pipeline has ended. Runs once.
/// Threads: the node's own, and one of the engine.
/// Failure: the constructor throws the transport's errors. Later failures go to
///          fastflow_options::on_failure, which by default ends the process with one sentence: a
///          sender is lost (noticed at once if killed, else after the transport's silence limit) or
///          failed, did not join in time, or sent something other than a `T`.
/// Cost:    one copy of each batch, one `new` per item.
template <typename T>
class fastflow_receiver : public ff::ff_node_t<T> {
public:
    /// `senders`: number of senders to expect, over all endpoints together; 0: one per endpoint.
    explicit fastflow_receiver(endpoints where, std::size_t senders = 0,
                               fastflow_options options = {})
        : in_(std::move(where), senders, type_name<T>(), std::move(options)) {}

    /// Addresses for the senders, with open parts of the endpoints filled in, as of shm:// and
    /// tcp://eth0:0.
    std::vector<std::string> addresses() { return in_.over().addresses(); }
    /// Ends the stream early, as if this node had failed; tells the senders why.
    void fail(const std::string& why) { in_.fail({{errc::canceled}, why}); }
    /// Why it ended early; empty if it is still running or ended normally.
    std::optional<failure> failed() const { return in_.failed(); }

    T* svc(T*) override {
        while (std::optional<detail::fastflow_in::arrival> batch = in_.next()) {
            if (give_on(*batch)) {
                in_.consumed(*batch);
            } else {
                in_.give_back(std::move(*batch));
            }
        }
        in_.wait_for_last_words();
        return this->EOS;
    }

private:
    bool give_on(const detail::fastflow_in::arrival& batch) {
        try {
            archive_reader archive(batch.bytes.bytes());
            for (std::uint32_t i = 0; i < batch.items && archive.ok(); ++i) {
                std::unique_ptr<T> item = read(archive);
                if (archive.ok()) this->ff_send_out(item.release());
            }
            if (archive.ok() && archive.remaining() == 0) return true;
            in_.fail({{errc::corrupt},
                      "cannot decode a batch of items (" + std::string(archive.why()) +
                          "): build both ends from the same sources"});
        } catch (const std::exception& why) {
            in_.fail({{errc::handler_failed}, std::string("cannot decode an item: ") + why.what()});
        }
        return false;
    }
    static std::unique_ptr<T> read(archive_reader& archive) {
        if constexpr (requires { T(T::amalgam_load(archive)); }) {
            return std::make_unique<T>(T::amalgam_load(archive));
        } else {
            static_assert(std::is_default_constructible_v<T>,
                          "this type cannot be deserialized: give it a default constructor, or "
                          "static T amalgam_load(amalgam::archive_reader&)");
            auto item = std::make_unique<T>();
            archive(*item);
            return item;
        }
    }

    detail::fastflow_in in_;
};

/// Last node of a pipeline, collector of a farm, or right worker of an all-to-all: sends its input
/// to receivers in other processes, and deletes it.
///
///     fastflow_sender<job> to("shm://G2");
///     fastflow_sender<job> to({"shm://G2", "tcp://node7:7000"});      // each item to one of them
///
/// With several receivers, items go to the least loaded one, or to the index given by
/// `route(item)`. Receivers may start later: it looks for them until join_limit. The node ends when
/// all items have left the receivers, so no loss goes unnoticed.
/// Owner:   as fastflow_receiver. Items must be created with `new T`.
/// Threads: the node's own, and one of the engine.
/// Failure: the constructor throws for invalid addresses. Later failures go to
///          fastflow_options::on_failure, as with a receiver.
/// Cost:    items are written into batches, with one lock per item. A node faster than its
///          receivers waits while `batches_in_flight` batches have not left them. Receivers emit
///          into FastFlow's queues, which are unbounded by default.
template <typename T>
class fastflow_sender : public ff::ff_node_t<T> {
    static_assert(serializable<T>, "T must be serializable to leave the process: see codec.hpp");

public:
    using router = std::function<std::size_t(const T&)>;

    explicit fastflow_sender(std::string receiver, fastflow_options options = {})
        : fastflow_sender(std::vector<std::string>{std::move(receiver)}, {}, std::move(options)) {}
    explicit fastflow_sender(std::vector<std::string> receivers, router route = {},
                             fastflow_options options = {})
        : out_(std::move(receivers), type_name<T>(), std::move(options)),
          route_(std::move(route)) {}

    /// As fastflow_receiver::fail() and failed().
    void fail(const std::string& why) { out_.fail({{errc::canceled}, why}); }
    std::optional<failure> failed() const { return out_.failed(); }

    int svc_init() override {
        out_.join();
        return 0;  // Even if that failed: ending here would leave the other nodes waiting.
    }
    T* svc(T* item) override {
        const std::unique_ptr<T> owned(item);
        try {
            std::optional<std::size_t> to;
            if (route_) to = route_(*item);
            out_.send(to, [item](auto& archive) { archive(*item); });
        } catch (const std::exception& why) {
            out_.fail(
                {{errc::handler_failed}, std::string("cannot encode an item: ") + why.what()});
        }
        return this->GO_ON;
    }
    void svc_end() override {
        out_.end();
        out_.wait_for_last_words();
    }

private:
    detail::fastflow_out out_;
    router route_;
};

}  // namespace amalgam
