#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/amalgam.hpp>
#include <amalgam/directory/context.hpp>

/// TPVM, "Distributed Concurrent Computing with Lightweight Processes", as the RoCL paper builds it
/// in section 5.1: tasks are processes and threads are ULTs, both are resources, and a TID is a
/// resource's id. There are no daemons: hosts are resources as well, which only say how to start
/// something there.
///
///     {type: task, host}                     a process that is part of it
///     {type: systhread, of: TID}             its pod controller, which starts threads on demand
///     {type: threadef, name, systhread}      a thread that it has exported
///     {type: thread, name}                   one that runs
///     {type: tmp, pid, host, ptid}           says to a process that starts who has started it
///     {type: host, name, how}                a host
namespace tpvm {

using tid = am::resource_id;

/// What a thread or a task has received.
struct message {
    tid from = tid::none;
    int tag = 0;
    am::message_buffer content;

    std::string_view text() const { return content.text(); }
};

/// Something with a TID: a task or a thread.
///
/// Threads: any.
/// Failure: throws am::error.
class endpoint {
public:
    tid id() const { return self_.id(); }
    /// Who has started it; none: nobody of us.
    tid parent() const { return parent_; }

    void send(tid to, int tag, am::const_bytes content) const { self_.send(to, tag, content); }
    void send(tid to, int tag, std::string_view text) const { self_.send(to, tag, text); }
    /// The next message; from anybody unless said otherwise, with any tag.
    message receive(tid from = tid::none, std::optional<int> tag = {}) const;

protected:
    endpoint() = default;
    am::resource self_;
    tid parent_ = tid::none;
};

/// One thread that runs.
class thread : public endpoint {
private:
    friend class task;
    thread() = default;
};

/// This process as a task; it enrolls when it is made. One for each process.
class task : public endpoint {
public:
    explicit task(am::context& here);
    task(const task&) = delete;
    task& operator=(const task&) = delete;
    ~task();

    am::context& here() { return here_; }

    /// A host, and the words that run a command there when they stand in front of it:
    /// {"ssh", "node7"}. Known to all, as long as this task lives.
    void add_host(const std::string& name, const std::vector<std::string>& how);
    std::vector<std::string> hosts();

    /// Starts a program on a host ("": this one), waits until it has enrolled, and gives its TID.
    /// The program is this one, or another that calls launch_if_asked() first of all.
    tid spawn_task(const std::string& host, const std::vector<std::string>& command);

    /// From now on others may start this thread, by its name. tpvm_export()
    void export_thread(const std::string& name, std::function<void(thread&)> body);
    /// Starts a thread of that name in the next of the tasks that have exported it, and gives its
    /// TID. tpvm_spawn()
    tid spawn_thread(const std::string& name);

private:
    void enroll();
    void control_pod();

    am::context& here_;
    am::resource pod_;
    am::ult controller_;
    std::mutex lock_;
    std::list<am::resource> registered_;
    std::list<std::pair<std::string, std::function<void(thread&)>>> exported_;
    std::list<am::ult> threads_;
    std::vector<int> started_;  // Processes.
    std::size_t turn_ = 0;
};

/// The file that this process runs: what to start more of the same from.
std::string own_program();

/// A program that tasks start calls this first: where it is started as a launcher ("--tpvm-launch
/// PTID HOST COMMAND…") it registers what the new task asks for, starts the command, waits for its
/// end, and does not return. Precondition: the process has one thread.
void launch_if_asked(int argc, char** argv);

}  // namespace tpvm
