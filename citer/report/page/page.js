const tip = document.getElementById("tip");
function show(event) {
  const target = event.target.closest("[data-tip]");
  tip.style.display = target ? "block" : "none";
  if (!target) return;
  tip.textContent = target.dataset.tip;
  const at = target.getClientRects()[0], width = document.documentElement.clientWidth;
  const left = Math.min(Math.max(12, at.left + at.width / 2 - tip.offsetWidth / 2), width - tip.offsetWidth - 12);
  const above = at.top - tip.offsetHeight - 8;
  tip.style.left = left + scrollX + "px";
  tip.style.top = (above < 0 ? at.bottom + 8 : above) + scrollY + "px";
}
document.addEventListener("pointerover", show);
document.addEventListener("click", show);
