// Looks at each of `pages` in a frame as wide as the window, and posts what is wrong with it.

const WIDE = 1400; // from this width on every table has room enough

/** Whether something around `element`, up to the page, can be scrolled sideways, so that nothing is cut. */
function scrolls(element) {
  for (let around = element; around && around.tagName !== "BODY"; around = around.parentElement)
    if (["auto", "scroll"].includes(getComputedStyle(around).overflowX)) return true;
  return false;
}

function faultsOf(frame) {
  const page = frame.contentDocument;
  const found = [];
  if (page.documentElement.scrollWidth > frame.clientWidth)
    found.push(`the page is ${page.documentElement.scrollWidth} pixels wide, the window ${frame.clientWidth}`);
  for (const element of page.querySelectorAll("article pre, article table, article img, article p, article li, article h1, article h2"))
    if (element.getBoundingClientRect().right > frame.clientWidth + 1 && !scrolls(element))
      found.push(`${element.tagName} is cut: ${element.textContent.trim().slice(0, 60)}`);
  if (frame.clientWidth >= WIDE)
    for (const table of page.querySelectorAll("article table"))
      if (table.getBoundingClientRect().right > table.closest("article").getBoundingClientRect().right + 1)
        found.push(`TABLE has to be scrolled: ${table.textContent.trim().replace(/\s+/g, " ").slice(0, 60)}`);
  for (const image of page.querySelectorAll("article img"))
    if (!image.naturalWidth) found.push(`no picture: ${image.getAttribute("src")}`);
  return found;
}

async function look() {
  const found = {};
  for (const address of pages) {
    const frame = document.createElement("iframe");
    frame.style = "border:0;width:100%;height:1000px";
    frame.src = address;
    document.body.append(frame);
    await new Promise((done) => (frame.onload = done));
    await new Promise((done) => setTimeout(done, 50)); // the theme's own script wraps tables
    found[address] = faultsOf(frame);
    frame.remove();
  }
  await fetch("/found", { method: "POST", body: JSON.stringify(found) });
}

look();
