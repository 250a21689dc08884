"""The forges that are known: their commands, and how their answers are read.

A command is a list of words; `{names}` in it are filled in once, so that no value is ever expanded or reaches a shell.
`open` opens a request. The questions print JSON; a reader turns their answers into what the request is now.

Whose reviews count is the forge's word: GitHub lists the latest reviews of people who may write (`writersOnly`), Gitea
and Forgejo mark them as official, GitLab lists the reviewers that a request was given to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from capsule.core.request import ChangeRequest, ForgeCheck, LineRemark, Outcome, Seen, Standing

_T = TypeVar("_T")
Words = tuple[str, ...]


class Ask(Protocol):
    """Ask one of a forge's questions."""

    def __call__(self, question: str, kind: type[_T], **values: str) -> _T:
        """Return the answer, checked."""


class Wanted(Struct, frozen=True):
    """The request that is looked for: of a branch, with its number if it is known."""

    branch: str
    number: int
    ours: Sequence[str]
    """Commits that we have pushed to the branch: a request that ended is only ours if it proposed one of them."""

    def choose(self, found: Sequence[Seen]) -> Seen | None:
        """Choose the request by its number, else the open one, else the newest that ended with a commit of ours."""
        known = [each for each in found if self.number and each.number == self.number]
        still_open = [each for each in found if each.standing is Standing.OPEN]
        ended = [each for each in found if not each.head or each.head in self.ours]
        return next(iter([*known, *still_open, *ended]), None)


class Preset(Struct, frozen=True, kw_only=True):
    """One kind of forge."""

    program: str
    get: str
    """How to get it, and to log in."""
    login: str
    """What helps if its login is missing or has expired."""
    hosts: Words
    """Parts of the host names that it is guessed from."""
    passes: Words
    """Variables of the user's environment that it needs."""
    open: Words
    questions: Mapping[str, Words]
    read: Callable[[Ask, Wanted], Seen | None]


# ---- GitHub


class _Login(Struct, frozen=True):
    login: str = ""


class _Oid(Struct, frozen=True):
    oid: str = ""


class _GitHubComment(Struct, frozen=True):
    body: str = ""
    path: str = ""
    line: int | None = None


class _Nodes(Struct, frozen=True):
    nodes: tuple[_GitHubComment, ...] = ()


class _GitHubReview(Struct, frozen=True):
    id: str
    state: str
    body: str = ""
    author: _Login | None = None
    comments: _Nodes = _Nodes()


class _Reviews(Struct, frozen=True):
    nodes: tuple[_GitHubReview, ...] = ()


class _Context(Struct, frozen=True, rename="camel"):
    """A check run, or a status that an older service has set."""

    name: str = ""
    status: str = ""
    conclusion: str | None = None
    details_url: str | None = ""
    context: str = ""
    state: str = ""
    target_url: str | None = ""


class _Contexts(Struct, frozen=True):
    nodes: tuple[_Context, ...] = ()


class _Rollup(Struct, frozen=True):
    contexts: _Contexts = _Contexts()


class _Commit(Struct, frozen=True, rename="camel"):
    status_check_rollup: _Rollup | None = None


class _CommitNode(Struct, frozen=True):
    commit: _Commit = _Commit()


class _Commits(Struct, frozen=True):
    nodes: tuple[_CommitNode, ...] = ()


class _GitHubRequest(Struct, frozen=True, rename="camel"):
    number: int
    url: str
    state: str
    head_ref_oid: str
    base_ref_name: str = ""
    is_cross_repository: bool = False
    merge_commit: _Oid | None = None
    latest_opinionated_reviews: _Reviews = _Reviews()
    commits: _Commits = _Commits()


class _Requests(Struct, frozen=True):
    nodes: tuple[_GitHubRequest, ...]


class _Repository(Struct, frozen=True, rename="camel"):
    pull_requests: _Requests


class _Data(Struct, frozen=True):
    repository: _Repository


class _GitHubAnswer(Struct, frozen=True):
    data: _Data


_GITHUB_STATES = {"OPEN": Standing.OPEN, "MERGED": Standing.MERGED, "CLOSED": Standing.CLOSED}
_GITHUB_FAILED = ("FAILURE", "ERROR", "TIMED_OUT", "STARTUP_FAILURE", "ACTION_REQUIRED")
_GITHUB_PENDING = ("PENDING", "EXPECTED")
_GITHUB_QUERY = """\
query($owner: String!, $name: String!, $branch: String!) {
  repository(owner: $owner, name: $name) {
    pullRequests(headRefName: $branch, first: 20, orderBy: {field: CREATED_AT, direction: DESC}) {
      nodes {
        number url state headRefOid baseRefName isCrossRepository mergeCommit { oid }
        latestOpinionatedReviews(first: 50, writersOnly: true) {
          nodes { id state body author { login } comments(first: 50) { nodes { path line body } } }
        }
        commits(last: 1) { nodes { commit { statusCheckRollup { contexts(first: 100) { nodes {
          ... on CheckRun { name status conclusion detailsUrl }
          ... on StatusContext { context state targetUrl }
        } } } } } }
      }
    }
  }
}"""


def _read_github(ask: Ask, wanted: Wanted) -> Seen | None:
    answer = ask("request", _GitHubAnswer, branch=wanted.branch)
    requests = answer.data.repository.pull_requests.nodes
    # A fork may have a branch of the same name: its request is not ours.
    return wanted.choose([_github_seen(each) for each in requests if not each.is_cross_repository])


def _github_seen(found: _GitHubRequest) -> Seen:
    last = [node.commit.status_check_rollup for node in found.commits.nodes]
    contexts = [context for rollup in last if rollup for context in rollup.contexts.nodes]
    return Seen(
        standing=_GITHUB_STATES.get(found.state, Standing.OPEN),
        number=found.number,
        url=found.url,
        head=found.head_ref_oid,
        base=found.base_ref_name,
        merged_as=found.merge_commit.oid if found.merge_commit else "",
        reviews=tuple(
            ChangeRequest(
                review.id,
                review.author.login if review.author else "",
                review.body,
                tuple(LineRemark(each.body, each.path, each.line) for each in review.comments.nodes),
            )
            for review in found.latest_opinionated_reviews.nodes
            if review.state == "CHANGES_REQUESTED"
        ),
        checks=tuple(map(_github_check, contexts)),
    )


def _github_check(context: _Context) -> ForgeCheck:
    said = context.state or (context.conclusion or "PENDING" if context.status == "COMPLETED" else "PENDING")
    outcome = Outcome.FAILED if said in _GITHUB_FAILED else Outcome.PASSED
    outcome = Outcome.PENDING if said in _GITHUB_PENDING else outcome
    return ForgeCheck(context.name or context.context, outcome, context.details_url or context.target_url or "")


# ---- GitLab


class _User(Struct, frozen=True):
    username: str = ""
    login: str = ""


class _MergeRequest(Struct, frozen=True):
    iid: int
    web_url: str
    state: str
    sha: str | None = ""
    target_branch: str = ""
    merge_commit_sha: str | None = ""
    squash_commit_sha: str | None = ""
    source_project_id: int | None = None
    target_project_id: int | None = None


class _Reviewer(Struct, frozen=True):
    user: _User
    state: str = ""


class _Position(Struct, frozen=True):
    new_path: str | None = ""
    new_line: int | None = None


class _Note(Struct, frozen=True):
    id: int
    body: str = ""
    author: _User | None = None
    system: bool = False
    resolved: bool | None = False
    position: _Position | None = None


class _Discussion(Struct, frozen=True):
    notes: tuple[_Note, ...] = ()


class _Pipeline(Struct, frozen=True):
    id: int
    status: str
    sha: str = ""
    web_url: str = ""


class _JobOfPipeline(Struct, frozen=True):
    name: str
    status: str = ""
    web_url: str = ""
    allow_failure: bool = False


_GITLAB_STATES = {"opened": Standing.OPEN, "merged": Standing.MERGED, "closed": Standing.CLOSED}
_GITLAB_UNDER_WAY = ("created", "waiting_for_resource", "preparing", "pending", "running")


def _read_gitlab(ask: Ask, wanted: Wanted) -> Seen | None:
    found = ask("requests", list[_MergeRequest], branch=wanted.branch)
    own = [each for each in found if each.source_project_id == each.target_project_id]
    chosen = wanted.choose([_gitlab_seen(each) for each in own])
    if chosen is None or chosen.standing is not Standing.OPEN:
        return chosen
    number = str(chosen.number)
    reviews, checks = _gitlab_reviews(ask, number), _gitlab_checks(ask, number, chosen.head)
    return replace(chosen, reviews=tuple(reviews), checks=tuple(checks))


def _gitlab_seen(found: _MergeRequest) -> Seen:
    return Seen(
        standing=_GITLAB_STATES.get(found.state, Standing.OPEN),
        number=found.iid,
        url=found.web_url,
        head=found.sha or "",
        base=found.target_branch,
        merged_as=found.merge_commit_sha or found.squash_commit_sha or "",
    )


def _gitlab_reviews(ask: Ask, number: str) -> Iterator[ChangeRequest]:
    """Yield a review for each note of a reviewer who requests changes; GitLab numbers notes, not reviews."""
    asking = [each for each in ask("reviewers", list[_Reviewer], number=number) if each.state == "requested_changes"]
    if not asking:
        return
    notes = [note for one in ask("discussions", list[_Discussion], number=number) for note in one.notes]
    for name in (each.user.username for each in asking):
        theirs = [each for each in notes if not each.system and not each.resolved and _is_by(each, name)]
        if not theirs:
            yield ChangeRequest(f"reviewer {name}", name)
        for note in theirs:
            at = note.position or _Position()
            remark = LineRemark(note.body, at.new_path or "", at.new_line)
            yield ChangeRequest(f"note {note.id}", name, *(("", (remark,)) if note.position else (note.body,)))


def _is_by(note: _Note, name: str) -> bool:
    return note.author is not None and note.author.username == name


def _gitlab_checks(ask: Ask, number: str, head: str) -> Iterator[ForgeCheck]:
    pipelines = [each for each in ask("pipelines", list[_Pipeline], number=number) if each.sha == head]
    for newest in pipelines[:1]:
        if newest.status in _GITLAB_UNDER_WAY:
            yield ForgeCheck("pipeline", Outcome.PENDING, newest.web_url)
        if newest.status == "failed":
            jobs = ask("jobs", list[_JobOfPipeline], pipeline=str(newest.id))
            failed = [job for job in jobs if job.status == "failed" and not job.allow_failure]
            yield from (ForgeCheck(job.name, Outcome.FAILED, job.web_url) for job in failed)
            if not failed:
                yield ForgeCheck("pipeline", Outcome.FAILED, newest.web_url)


# ---- Gitea and Forgejo


class _Ref(Struct, frozen=True):
    ref: str = ""
    sha: str = ""
    repo_id: int = 0


class _Pull(Struct, frozen=True):
    number: int
    html_url: str
    state: str
    head: _Ref
    base: _Ref
    merged: bool = False
    merge_commit_sha: str | None = ""


class _GiteaReview(Struct, frozen=True):
    id: int
    state: str
    body: str = ""
    user: _User | None = None
    official: bool = False
    dismissed: bool = False
    comments_count: int = 0


class _GiteaComment(Struct, frozen=True):
    body: str = ""
    path: str = ""
    position: int = 0


class _Status(Struct, frozen=True):
    context: str
    status: str
    target_url: str = ""


class _Combined(Struct, frozen=True):
    statuses: tuple[_Status, ...] | None = ()


_GITEA_OUTCOMES = {"pending": Outcome.PENDING, "failure": Outcome.FAILED, "error": Outcome.FAILED}


def _read_gitea(ask: Ask, wanted: Wanted) -> Seen | None:
    if wanted.number:
        found = [ask("request", _Pull, number=str(wanted.number))]
    else:
        found = [each for each in ask("requests", list[_Pull]) if each.head.ref == wanted.branch]
    own = [each for each in found if each.head.repo_id == each.base.repo_id]
    chosen = wanted.choose([_gitea_seen(each) for each in own])
    if chosen is None or chosen.standing is not Standing.OPEN:
        return chosen
    number = str(chosen.number)
    statuses = ask("statuses", _Combined, commit=chosen.head).statuses or ()
    checks = (ForgeCheck(s.context, _GITEA_OUTCOMES.get(s.status, Outcome.PASSED), s.target_url) for s in statuses)
    reviews = _gitea_reviews(ask, number)
    return replace(chosen, reviews=tuple(reviews), checks=tuple(checks))


def _gitea_seen(found: _Pull) -> Seen:
    ended = Standing.MERGED if found.merged else Standing.CLOSED
    return Seen(
        standing=Standing.OPEN if found.state == "open" else ended,
        number=found.number,
        url=found.html_url,
        head=found.head.sha,
        base=found.base.ref,
        merged_as=(found.merge_commit_sha or "") if found.merged else "",
    )


def _gitea_reviews(ask: Ask, number: str) -> Iterator[ChangeRequest]:
    """Yield the last review of each official reviewer, if it requests changes."""
    last = {
        each.user.login if each.user else "": each
        for each in ask("reviews", list[_GiteaReview], number=number)
        if each.official and not each.dismissed and each.state in ("REQUEST_CHANGES", "APPROVED")
    }
    for name, review in last.items():
        if review.state != "REQUEST_CHANGES":
            continue
        comments = (
            ask("comments", list[_GiteaComment], number=number, review=str(review.id)) if review.comments_count else []
        )
        remarks = tuple(LineRemark(each.body, each.path, each.position or None) for each in comments)
        yield ChangeRequest(f"review {review.id}", name, review.body, remarks)


# ---- branches


class BranchRights(Struct, frozen=True):
    """Whether a branch is protected, and whether we may push to it nevertheless, where the forge says that."""

    protected: bool = False
    can_push: bool | None = None
    """GitLab's word."""
    user_can_push: bool | None = None
    """Gitea's."""

    @property
    def by_request_only(self) -> bool:
        return self.protected and not (self.can_push or self.user_can_push)


# ---- a program of the user's own


class _OwnReview(Struct, frozen=True):
    id: str
    author: str = ""
    text: str = ""


class _OwnCheck(Struct, frozen=True):
    name: str
    outcome: Outcome = Outcome.FAILED
    url: str = ""


class OwnAnswer(Struct, frozen=True):
    """One request, in the JSON list that the command in `merge.request.look` prints."""

    state: Standing
    number: int = 0
    url: str = ""
    head: str = ""
    base: str = ""
    merged_as: str = ""
    reviews: tuple[_OwnReview, ...] = ()
    checks: tuple[_OwnCheck, ...] = ()


def read_own(ask: Ask, wanted: Wanted) -> Seen | None:
    found = ask("look", list[OwnAnswer], branch=wanted.branch)
    return wanted.choose([_own_seen(each) for each in found])


def _own_seen(found: OwnAnswer) -> Seen:
    return Seen(
        standing=found.state,
        number=found.number,
        url=found.url,
        head=found.head,
        base=found.base,
        merged_as=found.merged_as,
        reviews=tuple(ChangeRequest(each.id, each.author, each.text) for each in found.reviews),
        checks=tuple(ForgeCheck(each.name, each.outcome, each.url) for each in found.checks),
    )


# ---- the table


# gh and glab know a host by its name alone: its port is in their settings.
_GH_API = ("gh", "api", "graphql", "--hostname={hostname}")
_GLAB_API = ("glab", "api", "--hostname={hostname}")
_TEA_API = ("tea", "api", "--include")
"""Only the status that it includes tells a refusal from an answer. Its first version splits fields at commas: text goes
by files."""
_MERGE_REQUESTS = "projects/{project}/merge_requests"
_PULLS = "repos/{path}/pulls"

PRESETS: Mapping[str, Preset] = {
    "github": Preset(
        program="gh",
        get="https://cli.github.com, then `gh auth login`",
        login="See whether you are logged in: gh auth status",
        hosts=("github",),
        passes=("GH_*", "GITHUB_*"),
        open=(
            *("gh", "pr", "create", "--repo={hostname}/{path}", "--head={branch}", "--base={base}"),
            *("--title={title}", "--body-file={body_file}"),
        ),
        questions={
            "branch": ("gh", "api", "--hostname={hostname}", "repos/{path}/branches/{branch_quoted}"),
            "request": (
                *(*_GH_API, "--raw-field=owner={owner}", "--raw-field=name={name}", "--raw-field=branch={branch}"),
                "--raw-field=query={query}",
            ),
        },
        read=_read_github,
    ),
    "gitlab": Preset(
        program="glab",
        get="https://gitlab.com/gitlab-org/cli, then `glab auth login`",
        login="See whether you are logged in: glab auth status",
        hosts=("gitlab",),
        passes=("GLAB_*", "GITLAB_*"),
        open=(
            *(*_GLAB_API, "--method=POST", _MERGE_REQUESTS, "--raw-field=source_branch={branch}"),
            *("--raw-field=target_branch={base}", "--raw-field=title={title}", "--field=description=@{body_file}"),
        ),
        questions={
            "branch": (*_GLAB_API, "projects/{project}/repository/branches/{branch_quoted}"),
            "requests": (*_GLAB_API, f"{_MERGE_REQUESTS}?state=all&per_page=20&source_branch={{branch_quoted}}"),
            "reviewers": (*_GLAB_API, f"{_MERGE_REQUESTS}/{{number}}/reviewers"),
            "discussions": (*_GLAB_API, f"{_MERGE_REQUESTS}/{{number}}/discussions?per_page=100"),
            "pipelines": (*_GLAB_API, f"{_MERGE_REQUESTS}/{{number}}/pipelines"),
            "jobs": (*_GLAB_API, "projects/{project}/pipelines/{pipeline}/jobs?per_page=100"),
        },
        read=_read_gitlab,
    ),
    "gitea": Preset(
        program="tea",
        get="https://gitea.com/gitea/tea, 0.12 or newer, then `tea login add`",
        login="See whether you are logged in: tea login list",
        hosts=("gitea", "forgejo", "codeberg.org"),
        passes=("TEA_*", "GITEA_*"),
        open=(
            *(*_TEA_API, "-X", "POST", "-f", "head={branch}", "-f", "base={base}"),
            *("-F", "title=@{title_file}", "-F", "body=@{body_file}", _PULLS),
        ),
        questions={
            "branch": (*_TEA_API, "repos/{path}/branches/{branch_quoted}"),
            "requests": (*_TEA_API, f"{_PULLS}?state=all&limit=50"),
            "request": (*_TEA_API, f"{_PULLS}/{{number}}"),
            "reviews": (*_TEA_API, f"{_PULLS}/{{number}}/reviews?limit=50"),
            "comments": (*_TEA_API, f"{_PULLS}/{{number}}/reviews/{{review}}/comments"),
            "statuses": (*_TEA_API, "repos/{path}/commits/{commit}/status"),
        },
        read=_read_gitea,
    ),
}
QUERIES = {"query": _GITHUB_QUERY}
"""Values of names that are the same in every call."""


def guessed(host: str) -> str:
    """Return the kind of forge that a host name tells; '' if it tells none."""
    return next((name for name, preset in PRESETS.items() if any(part in host.lower() for part in preset.hosts)), "")
